"use strict";
// What a report does once it is open. Everything shown comes from the page itself; text goes in through textContent and never as HTML.
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // ---- What is remembered. A page opened from a disk may be refused any storage. ----
  const remember = (area, key, value) => { try { window[area].setItem(key, value); } catch { /* then it is forgotten */ } };
  const recall = (area, key) => { try { return window[area].getItem(key); } catch { return null; } };

  const THEMES = ["system", "light", "dark"];
  let theme = THEMES.includes(recall("localStorage", "actiongap-theme")) ? recall("localStorage", "actiongap-theme") : "system";
  const applyTheme = () => { if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme; };
  applyTheme();

  // ---- Numbers ----
  const known = (v) => typeof v === "number" && Number.isFinite(v);
  const raise = (n) => String(n).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  const minus = (text) => text.replace(/^-/, "−");

  // With as many decimals as the rest of the chart can use, or to so many digits where decimals mean nothing.
  function show(v, { decimals = null, digits = 5 } = {}) {
    if (!known(v)) return "–";
    const size = Math.abs(v);
    if (size !== 0 && (size < 1e-4 || size >= 1e12)) return minus(v.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e"));
    const form = decimals === null ? { maximumSignificantDigits: digits } : { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return minus(v.toLocaleString("en-US", form));
  }

  // An axis maps values to 0..1 and knows its ticks. Halves are subtracted, not wholes: their difference cannot overflow.
  function makeAxis(values, log, pad) {
    let lo = Infinity, hi = -Infinity;
    for (const v of values) if (known(v) && (!log || v > 0)) { if (v < lo) lo = v; if (v > hi) hi = v; }
    if (lo > hi) { if (log) return makeAxis(values, false, pad); lo = 0; hi = 1; }
    if (log) { lo = Math.log10(lo); hi = Math.log10(hi); }
    if (hi / 2 - lo / 2 <= 1e-9 * Math.max(Math.abs(lo), Math.abs(hi))) {
      const room = log ? 0.5 : Math.abs(lo) / 10 || 1;
      lo -= room; hi += room;
    } else {
      const room = 2 * (hi / 2 - lo / 2) * pad;
      // Numbers that are never negative get no room below zero.
      lo = !log && lo >= 0 ? Math.max(lo - room, 0) : Math.max(lo - room, -Number.MAX_VALUE);
      hi = !log && hi <= 0 ? Math.min(hi + room, 0) : Math.min(hi + room, Number.MAX_VALUE);
    }
    const at = (v) => { const u = log ? Math.log10(v) : v; return (u / 2 - lo / 2) / (hi / 2 - lo / 2); };
    return { log, lo, hi, at, ticks: (count) => (log ? logTicks(lo, hi, count) : linearTicks(lo, hi, count)) };
  }

  function linearTicks(lo, hi, count) {
    const rough = ((hi / 2 - lo / 2) / Math.max(1, count)) * 2;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
    const first = Math.ceil(lo / step - 1e-9);
    const last = Math.min(Math.floor(hi / step + 1e-9) - first, 50);
    const values = Array.from({ length: Math.max(0, last + 1) }, (_, i) => (first + i) * step);
    const top = Math.max(...values.map(Math.abs), 0);
    const label = (v) => {
      if (v === 0) return "0";
      if (top >= 1e13 || top < 1e-3) return minus(Number(v.toPrecision(6)).toExponential().replace(/e\+?(-?\d+)/, (_, e) => `×10${raise(e)}`));
      const [unit, suffix] = top >= 1e9 ? [1e9, "B"] : top >= 1e6 ? [1e6, "M"] : top >= 1e4 ? [1e3, "k"] : [1, ""];
      const decimals = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
      return minus((v / unit).toFixed(Math.min(decimals, 12))) + suffix;
    };
    return values.map((value) => ({ value, label: label(value) }));
  }

  function logTicks(lo, hi, count) {
    const label = (m, e) => {
      if (e >= -3 && e <= 3) return String(Number((m * 10 ** e).toPrecision(3)));
      return m === 1 ? `10${raise(e)}` : `${m}×10${raise(e)}`;
    };
    const decades = Math.floor(hi) - Math.ceil(lo) + 1;
    const multiples = decades > count / 2 ? [1] : decades > count / 4 ? [1, 3] : [1, 2, 5];
    const stride = Math.max(1, Math.ceil(decades / Math.max(1, count)));
    const ticks = [];
    for (let e = Math.floor(lo); e <= hi; e++) {
      if (multiples.length === 1 && e % stride !== 0) continue;
      for (const m of multiples) {
        const u = e + Math.log10(m);
        if (u >= lo - 1e-9 && u <= hi + 1e-9) ticks.push({ value: m * 10 ** e, label: label(m, e) });
      }
    }
    // Less than a step of 1, 2, 5 in sight: even spacing says more.
    return ticks.length >= 2 ? ticks : linearTicks(10 ** lo, 10 ** hi, count).filter((t) => t.value > 0);
  }

  // ---- Files ----
  const guard = (text) => (/^\s*[=+\-@＝＋－＠]/.test(text) ? `'${text}` : text); // a spreadsheet would run it
  const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const field = (v) => (typeof v === "string" ? quote(guard(v)) : v === null || v === undefined ? "" : quote(String(v)));
  const csv = (rows) => rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
  const exactly = (text) => (text === undefined ? null : { toString: () => text }); // a number, with all the digits it was written with

  function download(figure, rows) {
    const title = figure.querySelector(".title").textContent;
    const name = title.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60).replace(/^-|-$/g, "") || "data";
    const address = URL.createObjectURL(new Blob([csv(rows)], { type: "text/csv;charset=utf-8" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  // ---- Charts ----
  function shape(parent, tag, attributes, text) {
    const made = document.createElementNS(parent.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }
  function element(parent, tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }
  const lookClass = (look) => `k${look % 8} d${Math.floor(look / 8) % 4}`;
  const px = (v) => v.toFixed(1);

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.plot = figure.querySelector(".plot");
      this.svg = this.plot.querySelector("svg");
      this.keys = [...figure.querySelectorAll(".key")];
      this.width = 0;
      for (const key of this.keys) key.addEventListener("click", () => this.press(key));
      for (const way of ["all", "none"]) figure.querySelector(`[data-do=${way}]`)?.addEventListener("click", () => {
        for (const key of this.keys) key.setAttribute("aria-pressed", String(way === "all"));
        this.draw();
      });
      for (const axis of ["x", "y"]) this.button(axis)?.addEventListener("click", (event) => this.press(event.currentTarget));
      figure.querySelector("[data-do=csv]").addEventListener("click", () => download(figure, this.rows()));
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerdown", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.leave(); });
      this.plot.addEventListener("blur", () => this.leave());
      this.plot.addEventListener("keydown", (event) => this.step(event));
    }

    get data() { return (this.parsed ??= JSON.parse(this.figure.querySelector("script").textContent)); }
    button(axis) { return this.figure.querySelector(`[data-do=log-${axis}]`); }
    log(axis) { return this.button(axis)?.getAttribute("aria-pressed") === "true"; }
    on(i) { return this.keys[i].getAttribute("aria-pressed") === "true"; }

    press(button) {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      this.draw();
    }

    get state() { return [...this.figure.querySelectorAll("[aria-pressed]")].map((b) => [b.textContent, b.getAttribute("aria-pressed")]); }
    set state(pairs) {
      const pressed = new Map(pairs);
      for (const b of this.figure.querySelectorAll("[aria-pressed]")) b.setAttribute("aria-pressed", pressed.get(b.textContent) ?? b.getAttribute("aria-pressed"));
    }

    rows() {
      const { data } = this;
      const rows = [["series", data.xLabel || "x", data.yLabel || "y", "low", "high", "n"]];
      for (const s of data.series) data.x[s.x].forEach((x, i) => rows.push([s.name, x, s.y[i], s.low?.[i], s.high?.[i], s.n]));
      return rows;
    }

    draw() {
      const width = this.plot.clientWidth, height = this.plot.clientHeight;
      if (!width) return; // not in sight: inside a choice that is not chosen
      this.width = width;
      this.leave();
      const { data } = this;
      const lines = data.series.map((s, i) => ({ ...s, xs: data.x[s.x], i }));
      const seen = lines.filter((s) => this.on(s.i));
      const scope = seen.length ? seen : lines;
      const logX = this.log("x"), least = Math.min(...scope.map((s) => s.y.reduce((m, v) => (v > 0 && v < m ? v : m), Infinity)));
      const logY = this.log("y") && least < Infinity;
      const x = makeAxis(scope.flatMap((s) => s.xs.filter((_, i) => known(s.y[i]))), logX, logX ? 0.02 : 0);
      // On a log axis a band may reach down to zero: it is followed for a decade below the lines, and cut off there. On another it is followed
      // as far beyond the lines as these are from zero at most: of two runs it may be ten times as wide, and would leave the lines no room.
      const heights = scope.flatMap((s) => s.y.filter(known));
      const far = heights.reduce((m, v) => Math.max(m, Math.abs(v)), 0) || Infinity;
      const floor = logY ? least / 10 : heights.reduce((m, v) => Math.min(m, v), Infinity) - far;
      const ceiling = logY ? Infinity : heights.reduce((m, v) => Math.max(m, v), -Infinity) + far;
      const shown = (v) => (!known(v) || (logY && v <= 0) ? null : Math.min(Math.max(v, floor), ceiling));
      const y = makeAxis(scope.flatMap((s) => [s.y, (s.low ?? []).map(shown), (s.high ?? []).map(shown)].flat()), logY, 0.04);
      const top = 8, right = 14, bottom = height - 26;
      const yTicks = y.ticks(Math.floor(height / 52));
      const left = 12 + 7 * Math.max(2, ...yTicks.map((t) => t.label.length));
      const X = (v) => left + x.at(v) * (width - left - right);
      const Y = (v) => bottom - (y.log && v <= 0 ? 0 : y.at(v)) * (bottom - top);
      const fits = (s, i) => known(s.xs[i]) && known(s.y[i]) && (!x.log || s.xs[i] > 0) && (!y.log || s.y[i] > 0);
      this.frame = { x, y, X, Y, top, bottom, left, right: width - right, seen, fits };

      const svg = this.svg;
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const grid = shape(svg, "g", { class: "grid" });
      for (const t of yTicks) {
        const h = px(Y(t.value));
        shape(grid, "path", { d: `M${left} ${h}H${width - right}`, class: t.value === 0 ? "zero" : "" });
        shape(grid, "text", { x: left - 8, y: h, dy: "0.32em", "text-anchor": "end" }, t.label);
      }
      const xTicks = x.ticks(Math.max(2, Math.floor((width - left) / 90)));
      xTicks.forEach((t) => {
        const at = X(t.value), half = 3.4 * t.label.length;
        shape(grid, "path", { d: `M${px(at)} ${bottom}v5`, class: "tick" });
        shape(grid, "text", { x: px(Math.min(at, width - half)), y: bottom + 19, "text-anchor": "middle" }, t.label);
      });
      shape(grid, "path", { d: `M${left} ${bottom}H${width - right}`, class: "base" });
      // What an axis cuts off stays inside the frame.
      const clip = `clip-${(Chart.count = (Chart.count ?? 0) + 1)}`;
      shape(shape(svg, "clipPath", { id: clip }), "rect", { x: left - 3, y: top - 4, width: width - right - left + 6, height: bottom - top + 4 });
      const bands = shape(svg, "g", { class: "bands", "clip-path": `url(#${clip})` });
      const strokes = shape(svg, "g", { class: "lines", "clip-path": `url(#${clip})` });
      for (const s of seen) {
        if (s.low) this.band(bands, s, X, Y);
        this.line(strokes, s, X, Y);
      }
      this.marks = shape(svg, "g", { class: "marks" });
      if (!seen.some((s) => s.y.some((_, i) => fits(s, i)))) {
        const why = lines.length && !seen.length ? "every series is switched off" : "no values to show";
        shape(svg, "text", { class: "empty", x: (left + width) / 2, y: (top + bottom) / 2, "text-anchor": "middle" }, why);
      }
    }

    line(parent, s, X, Y) {
      const { fits } = this.frame;
      let path = "", alone = "";
      for (let i = 0; i < s.xs.length; i++) {
        if (!fits(s, i)) continue;
        const begins = i === 0 || !fits(s, i - 1), ends = i === s.xs.length - 1 || !fits(s, i + 1);
        const here = `${px(X(s.xs[i]))} ${px(Y(s.y[i]))}`;
        if ((begins && ends) || this.data.dots) alone += `M${here}h0`;
        if (!(begins && ends)) path += (begins ? "M" : "L") + here;
      }
      if (path) shape(parent, "path", { d: path, class: lookClass(s.look) });
      if (alone) shape(parent, "path", { d: alone, class: `alone k${s.look % 8}` });
    }

    band(parent, s, X, Y) {
      const { x } = this.frame;
      const has = (i) => known(s.xs[i]) && (!x.log || s.xs[i] > 0) && known(s.low[i]) && known(s.high[i]);
      for (let i = 0; i < s.xs.length; i++) {
        if (!has(i)) continue;
        const start = i;
        while (i + 1 < s.xs.length && has(i + 1)) i++;
        const places = Array.from({ length: i - start + 1 }, (_, k) => start + k);
        if (places.length === 1) { // a band over one point is a whisker
          shape(parent, "path", { d: `M${px(X(s.xs[i]))} ${px(Y(s.low[i]))}V${px(Y(s.high[i]))}`, class: `whisker k${s.look % 8}` });
          continue;
        }
        const up = places.map((k) => `${px(X(s.xs[k]))} ${px(Y(s.high[k]))}`);
        const down = places.reverse().map((k) => `${px(X(s.xs[k]))} ${px(Y(s.low[k]))}`);
        shape(parent, "path", { d: `M${up.join("L")}L${down.join("L")}Z`, class: `k${s.look % 8}` });
      }
    }

    // The readout: the x nearest to the pointer, and what every series says there.
    point(event) {
      if (!this.frame) this.draw();
      const box = this.plot.getBoundingClientRect();
      this.read(this.nearest(event.clientX - box.left));
    }

    nearest(at) {
      let best = null, distance = Infinity;
      const { seen, fits, X } = this.frame;
      for (const s of seen) s.xs.forEach((v, i) => {
        if (!fits(s, i)) return;
        const d = Math.abs(X(v) - at);
        if (d < distance) { distance = d; best = v; }
      });
      return best;
    }

    step(event) {
      const { key } = event;
      if (key === "Escape") return this.leave();
      if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(key)) return;
      event.preventDefault();
      if (!this.frame) this.draw();
      const { seen, fits } = this.frame;
      const all = [...new Set(seen.flatMap((s) => s.xs.filter((_, i) => fits(s, i))))].sort((a, b) => a - b);
      if (!all.length) return;
      const now = all.indexOf(this.at);
      const next = key === "Home" ? 0 : key === "End" ? all.length - 1 : now < 0 ? (key === "ArrowRight" ? 0 : all.length - 1) : now + (key === "ArrowRight" ? 1 : -1);
      this.read(all[Math.min(Math.max(next, 0), all.length - 1)]);
    }

    read(at) {
      if (at === null || at === this.at) return;
      this.leave();
      this.at = at;
      const { seen, fits, X, Y, y, top, bottom, left, right } = this.frame;
      const decimals = Math.ceil(3 - Math.log10(y.hi - y.lo));
      const form = y.log || decimals > 8 ? {} : { decimals: Math.max(0, decimals) };
      shape(this.marks, "path", { d: `M${px(X(at))} ${top}V${bottom}`, class: "cross" });
      const box = (this.readout = element(this.plot, "div", "readout"));
      box.setAttribute("role", "status");
      const head = element(box, "p", "where");
      element(head, "bdi", "", this.data.xLabel || "x");
      head.append(` ${show(at, { digits: 9 })}`);
      const table = element(element(box, "table"), "tbody");
      const found = seen.map((s) => {
        let place = -1;
        // A series with points of its own is read at the nearest of them, if that is near on the screen.
        s.xs.forEach((v, i) => { if (fits(s, i) && Math.abs(X(v) - X(at)) < 12 && (place < 0 || Math.abs(X(v) - X(at)) < Math.abs(X(s.xs[place]) - X(at)))) place = i; });
        return { s, place };
      });
      found.sort((a, b) => (b.place < 0 ? -Infinity : b.s.y[b.place]) - (a.place < 0 ? -Infinity : a.s.y[a.place]) || a.s.i - b.s.i);
      for (const { s, place } of found) {
        const row = element(table, "tr");
        element(row, "td").append(this.keys[s.i].querySelector("svg").cloneNode(true));
        element(element(row, "th"), "bdi", "", s.name);
        element(row, "td", "number", place < 0 ? "–" : show(s.y[place], form));
        const band = place >= 0 && s.low && known(s.low[place]) && known(s.high[place]);
        element(row, "td", "interval", band ? `[${show(s.low[place], form)}, ${show(s.high[place], form)}]` : "");
        const aside = [s.n === null ? "" : `n = ${s.n}`, place >= 0 && s.xs[place] !== at ? `at ${show(s.xs[place], { digits: 9 })}` : ""];
        element(row, "td", "n", aside.filter(Boolean).join(", "));
        if (place >= 0) shape(this.marks, "circle", { cx: px(X(s.xs[place])), cy: px(Y(s.y[place])), r: 3.5, class: `k${s.look % 8}` });
      }
      // On the other side of the pointer, never over what is pointed at; under the chart where there is no room beside it.
      const room = right - left, wide = box.offsetWidth;
      if (wide > room / 2) { box.classList.add("below"); return; }
      const beside = X(at) + 14 + wide <= right ? X(at) + 14 : X(at) - 14 - wide;
      box.style.left = `${Math.max(left, beside)}px`;
    }

    leave() {
      this.at = null;
      this.readout?.remove();
      this.marks?.replaceChildren();
    }
  }

  // ---- Dots and whiskers: placed in per cent, so that they follow any width without being drawn again. ----
  function drawIntervals(figure) {
    const table = figure.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    const number = (text) => (text === undefined ? null : Number(text));
    const points = rows.map(({ dataset }) => ({ value: number(dataset.value), low: number(dataset.low), high: number(dataset.high) }));
    const axis = makeAxis(points.flatMap((p) => [p.value, p.low, p.high]), false, 0.06);
    const percent = (v) => `${(100 * axis.at(v)).toFixed(2)}%`;
    const ticks = axis.ticks(5);
    const put = (parent, className, left, text) => { const made = element(parent, "span", className, text); made.style.left = left; return made; };
    rows.forEach((row, i) => {
      const strip = element(row.querySelector(".strip"), "div"), p = points[i];
      for (const t of ticks) put(strip, t.value === 0 ? "grid zero" : "grid", percent(t.value));
      if (known(p.low) && known(p.high)) put(strip, "whisker", percent(p.low)).style.width = `${(100 * (axis.at(p.high) - axis.at(p.low))).toFixed(2)}%`;
      if (known(p.value)) put(strip, "dot", percent(p.value));
    });
    const foot = element(element(table, "tfoot"), "tr");
    foot.setAttribute("aria-hidden", "true");
    element(foot, "td", "name");
    const labels = element(element(foot, "td", "strip"), "div", "ticks");
    for (const t of ticks) put(labels, "", percent(t.value), t.label);
    element(foot, "td", "number");
    element(foot, "td", "n");
    figure.querySelector("[data-do=csv]").addEventListener("click", () => download(figure, [
      ["name", table.tHead.rows[0].cells[1].textContent || "value", "low", "high", "n"],
      ...rows.map((row) => [row.cells[0].textContent, exactly(row.dataset.value), exactly(row.dataset.low), exactly(row.dataset.high), row.querySelector(".n").textContent]),
    ]));
  }

  // ---- Tables ----
  class Table {
    constructor(figure) {
      this.figure = figure;
      this.heads = [...figure.querySelectorAll("thead th")];
      this.body = figure.querySelector("tbody");
      this.rows = [...this.body.rows];
      this.order = { column: -1, direction: "none" };
      this.filter = figure.querySelector("input[type=search]");
      this.heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => this.turn(column)));
      this.filter?.addEventListener("input", () => this.sift());
      if (this.filter) this.sift();
      figure.querySelector("[data-do=csv]").addEventListener("click", () => download(figure, this.cells()));
    }

    // Numbers come before words, and what is missing comes last whichever way the rest is turned.
    key(row, column) {
      const cell = row.cells[column];
      if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
      const text = cell.classList.contains("number") || cell.classList.contains("missing") ? "" : cell.textContent.trim();
      return text === "" ? null : text;
    }

    turn(column) {
      const now = this.order.column === column ? this.order.direction : "none";
      this.sort(column, { none: "ascending", ascending: "descending", descending: "none" }[now]);
    }

    sort(column, direction) {
      this.order = { column, direction };
      this.heads.forEach((head, i) => head.setAttribute("aria-sort", i === column ? direction : "none"));
      let rows = this.rows;
      if (direction !== "none") {
        const sign = direction === "ascending" ? 1 : -1;
        const words = new Intl.Collator(undefined, { numeric: true }).compare;
        const keyed = rows.map((row) => ({ row, key: this.key(row, column) }));
        keyed.sort(({ key: a }, { key: b }) => {
          if (a === null || b === null) return (a === null) - (b === null);
          if (typeof a !== typeof b) return sign * (typeof a === "number" ? -1 : 1);
          return sign * (typeof a === "number" ? (a > b) - (a < b) : words(a, b));
        });
        rows = keyed.map(({ row }) => row);
      }
      const turned = document.createDocumentFragment();
      for (const row of rows) turned.append(row);
      this.body.append(turned);
    }

    sift() {
      const wanted = this.filter.value.trim().toLowerCase();
      let left = 0;
      for (const row of this.rows) { row.hidden = !row.textContent.toLowerCase().includes(wanted); left += !row.hidden; }
      this.figure.querySelector("output").textContent = wanted ? `${left} of ${this.rows.length} rows` : `${this.rows.length} rows`;
    }

    cells() {
      const names = this.heads.flatMap((head) => {
        const name = head.querySelector("bdi").textContent;
        return head.dataset.estimate === undefined ? [name] : [name, `${name} low`, `${name} high`, `${name} n`];
      });
      const rows = this.rows.map((row) => this.heads.flatMap((head, i) => {
        const cell = row.cells[i], { value, low, high, n } = cell.dataset;
        const shown = cell.matches(".number, .missing") ? exactly(value) : cell.textContent;
        return head.dataset.estimate === undefined ? [shown] : [shown, exactly(low), exactly(high), exactly(n)];
      }));
      return [names, ...rows];
    }

    get state() { return { ...this.order, filter: this.filter?.value ?? "" }; }
    set state({ column, direction, filter }) {
      if (column >= 0 && column < this.heads.length) this.sort(column, direction);
      if (this.filter) { this.filter.value = filter; this.sift(); }
    }
  }

  // ---- Choices ----
  class Choice {
    constructor(block) {
      this.selects = [...block.querySelectorAll(":scope > .selectors select")];
      this.options = [...block.querySelectorAll(":scope > .option")].map((box) => ({ box, key: box.dataset.key.split(" ").map(Number) }));
      this.selects.forEach((select, axis) => select.addEventListener("change", () => this.choose(axis)));
      this.choose(0);
    }

    // Not every combination is there: what was just chosen stands, and the others give way as little as they can.
    choose(axis) {
      const wanted = this.selects.map((select) => select.selectedIndex);
      const score = ({ key }) => (key[axis] === wanted[axis] ? wanted.length : 0) + key.filter((k, i) => k === wanted[i]).length;
      const best = this.options.reduce((a, b) => (score(b) > score(a) ? b : a));
      best.key.forEach((place, i) => { this.selects[i].selectedIndex = place; });
      for (const option of this.options) option.box.classList.toggle("shown", option === best);
    }

    get state() { return this.selects.map((select) => select.value); }
    set state(values) {
      this.selects.forEach((select, i) => { const place = [...select.options].findIndex((o) => o.value === values[i]); if (place >= 0) select.selectedIndex = place; });
      this.choose(0);
    }
  }

  // ---- The live page ----
  function watch(blocks) {
    const badge = document.querySelector(".live");
    let moved = 0;
    for (const kind of ["pointerdown", "keydown", "input"]) addEventListener(kind, () => { moved = Date.now(); });
    const old = JSON.parse(recall("sessionStorage", "actiongap-live") ?? "null");
    remember("sessionStorage", "actiongap-live", "null");
    if (old?.path === location.pathname) {
      for (const [id, state] of old.blocks) if (blocks.has(id)) blocks.get(id).state = state;
      scrollTo(0, old.scroll);
    }
    const ask = async () => {
      try {
        const answer = await fetch("revision", { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.statusText);
        const text = await answer.text();
        badge.textContent = "live";
        badge.classList.remove("lost");
        // Not under the reader's hands.
        if (text !== root.dataset.live && Date.now() - moved > 3000) {
          const state = { path: location.pathname, scroll: scrollY, blocks: [...blocks].map(([id, block]) => [id, block.state]) };
          remember("sessionStorage", "actiongap-live", JSON.stringify(state));
          location.reload();
          return;
        }
      } catch {
        badge.textContent = "connection lost";
        badge.classList.add("lost");
      }
      setTimeout(ask, 2000);
    };
    ask();
  }

  async function copy(button) {
    const command = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(command.textContent);
    } catch { // refused, or not a secure page: the old way
      getSelection().selectAllChildren(command);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // A moving picture stands still for those who asked for that, until they press it.
  function still(picture) {
    const canvas = document.createElement("canvas");
    canvas.width = picture.naturalWidth;
    canvas.height = picture.naturalHeight;
    canvas.getContext("2d").drawImage(picture, 0, 0);
    const button = element(picture.parentElement, "button", "play", "Play the animation");
    button.type = "button";
    picture.before(canvas);
    canvas.after(button);
    picture.hidden = true;
    button.addEventListener("click", () => { canvas.remove(); button.remove(); picture.hidden = false; });
  }

  addEventListener("DOMContentLoaded", () => {
    const themeButton = document.querySelector("#theme");
    const nameTheme = () => { themeButton.textContent = `Theme: ${theme}`; };
    nameTheme();
    themeButton.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      remember("localStorage", "actiongap-theme", theme);
      applyTheme();
      nameTheme();
    });

    const blocks = new Map(); // what has a state worth keeping over a reload, by its anchor
    const charts = new Map();
    for (const block of document.querySelectorAll(".choice")) blocks.set(block.id, new Choice(block));
    for (const figure of document.querySelectorAll("figure.table")) blocks.set(figure.id, new Table(figure));
    for (const figure of document.querySelectorAll("figure.intervals")) drawIntervals(figure);
    for (const figure of document.querySelectorAll("figure.chart")) {
      const chart = new Chart(figure);
      charts.set(chart.plot, chart);
      blocks.set(figure.id, chart);
    }
    for (const button of document.querySelectorAll("[data-do=copy]")) button.addEventListener("click", () => copy(button));
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      for (const picture of document.querySelectorAll("img[src^='data:image/gif']")) picture.decode().then(() => still(picture), () => {});
    }
    if (root.dataset.live !== undefined) watch(blocks);

    // Charts are drawn when they come near, again when their width changes, and all of them before the page is printed.
    const near = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) if (isIntersecting && !charts.get(target).width) charts.get(target).draw();
    }, { rootMargin: "800px 0px" });
    const size = new ResizeObserver((entries) => {
      for (const { target } of entries) if (charts.get(target).width && charts.get(target).width !== target.clientWidth) charts.get(target).draw();
    });
    for (const plot of charts.keys()) { near.observe(plot); size.observe(plot); }
    const drawAll = () => { for (const chart of charts.values()) if (!chart.width) chart.draw(); };
    addEventListener("beforeprint", drawAll);

    const contents = document.querySelector("nav details");
    const wide = matchMedia("(min-width: 64rem)");
    const fold = () => { contents.open = wide.matches; };
    wide.addEventListener("change", fold);
    fold();
    contents.addEventListener("click", (event) => { if (event.target.matches("a") && !wide.matches) contents.open = false; });
    const links = [...document.querySelectorAll("nav > details > ol > li > a")];
    const heads = [...document.querySelectorAll("main h2")];
    let waiting = false;
    const spy = () => {
      waiting = false;
      const here = Math.max(0, heads.findLastIndex((head) => head.getBoundingClientRect().top < innerHeight / 3));
      links.forEach((link, i) => { if (i === here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current"); });
    };
    addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(spy); } }, { passive: true });
    spy();
  });
})();
