// Web workers for pages that were opened as files, to which browsers refuse them: the script runs in a frame that nobody sees.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      this.frame = frame;
      this.ready = new Promise((resolve, reject) => {
        // What a worker says goes to whoever listens to this object. The frame's own way of posting would reach only the frame.
        inside.postMessage = (data) => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
        inside.importScripts = (...names) =>
          names.reduce((before, name) => before.then(() => load(inside, new URL(name, address))), Promise.resolve());
        load(inside, address).then(resolve, reject);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };

  function load(inside, address) {
    return new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot read ${address}`));
      inside.document.head.append(script);
    });
  }
}
