// Drawing. Everything shown is a function of the sliders, the noise and the clock; no other state is kept.
addEventListener("DOMContentLoaded", () => {
  const find = (selector, inside = document) => inside.querySelector(selector);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const minus = (text) => text.replace(/-/g, "−");
  // A number that rounds to 10 has as many digits as 10.
  const short = (v) => minus(v.toFixed(Math.abs(v) >= 9.995 ? 1 : Math.abs(v) >= 0.9995 ? 2 : 3));

  function shape(parent, tag, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("--")) made.style.setProperty(name, value); else made.setAttribute(name, value);
    }
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }
  function say(place, number, words, bad) {
    const big = document.createElement("b");
    big.textContent = number;
    place.replaceChildren(big, ` ${words}`);
    place.classList.toggle("bad", bad);
  }

  // ---- Sliders ----
  const chooser = find("#operator"), sliders = ["alpha", "epsilon", "gamma", "sigma"].map((name) => find(`#${name}`));
  const setting = (name) => Number(find(`#${name}`).value);
  let seed = 1, waiting = false;
  chooser.value = "al";

  // Recompute only what depends on the sliders, at most once per frame.
  const solved = new Map();
  function solution(mdp, name, settings) {
    const key = JSON.stringify([mdp, name, settings.gamma, settings.epsilon, FAMILY[name].numbers.length ? settings.alpha : 0]);
    if (solved.size > 400) solved.clear();
    if (!solved.has(key)) solved.set(key, solve(MDPS[mdp], FAMILY[name], settings));
    return solved.get(key);
  }

  function draw() {
    waiting = false;
    const alpha = setting("alpha"), settings = { epsilon: setting("epsilon"), gamma: setting("gamma"), alpha, k: 1 - alpha };
    const name = chooser.value, sigma = setting("sigma");
    for (const slider of sliders) find(`output[for=${slider.id}]`).value = Number(slider.value).toFixed(2);
    find("#alpha").disabled = !FAMILY[name].numbers.length;
    find("#chosen").textContent = FAMILY[name].name;
    find("#formula").textContent = `T′Q = ${minus(FAMILY[name].formula.replace(/b\.|Math\./g, "").replace(/\bk\b/g, "K").replace(/ \* /g, " · "))}`;
    find("#words").textContent = FAMILY[name].words;
    for (const title of document.querySelectorAll("#cake .side-c .title, #garden .side-c .title")) title.textContent = FAMILY[name].name;
    const text = [name, ...FAMILY[name].numbers.map((number) => Number(settings[number].toFixed(2)))].join(":");
    for (const place of document.querySelectorAll(".commands .mine")) place.textContent = text;
    for (const knob of ["gamma", "epsilon"]) find(`.commands .${knob}`).textContent = settings[knob];
    drawCake(name, settings, sigma);
    drawGarden(name, settings, sigma);
  }
  const change = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
  const choose = (name) => { chooser.value = name; change(); };
  const reshuffle = () => { seed += 1; change(); };
  chooser.addEventListener("change", change);
  for (const slider of sliders) slider.addEventListener("input", change);
  find("#panel").addEventListener("submit", (event) => event.preventDefault());
  find("#again").addEventListener("click", reshuffle);
  let shaking = null;
  find("#shake").addEventListener("click", ({ currentTarget }) => {
    shaking = shaking === null ? setInterval(() => { if (!document.hidden) reshuffle(); }, 900) : clearInterval(shaking) ?? null;
    currentTarget.setAttribute("aria-pressed", String(shaking !== null));
  });

  // ---- The cake ----
  const EAT = 0, DRAWS = 100;
  const rungs = Object.keys(FAMILY).map((name) => {
    const rung = document.createElement("button");
    rung.type = "button";
    rung.className = "rung";
    rung.dataset.name = name;
    rung.append(FAMILY[name].name, Object.assign(document.createElement("span"), { className: "track" }), document.createElement("output"));
    rung.children[0].append(Object.assign(document.createElement("div"), { className: "bar" }));
    rung.addEventListener("click", () => choose(name));
    find("#ladder").append(rung);
    return rung;
  });

  function drawCake(name, settings, sigma) {
    find("#worth").textContent = `worth ${short(solution("cake", "bellman", settings).q[1][0])}`;
    const found = Object.fromEntries(Object.keys(FAMILY).map((each) => [each, solution("cake", each, settings)]));
    const gap = ({ q }) => q[0][1] - q[0][EAT];
    const widest = Math.max(...Object.values(found).filter((one) => one.settled).map(gap));
    for (const rung of rungs) {
      const one = found[rung.dataset.name];
      rung.setAttribute("aria-pressed", String(rung.dataset.name === name));
      rung.classList.toggle("lost", !one.settled);
      find("output", rung).value = one.settled ? short(gap(one)) : "no convergence";
      find(".bar", rung).style.setProperty("--p", one.settled ? (100 * gap(one)) / widest : 0);
    }
    const both = ["bellman", name].map((each) => found[each]);
    const rows = both.filter((one) => one.settled).map((one) => one.q[0]);
    const spread = Math.max(sigma, 0.004 * Math.max(...rows.map((row) => row[1] - row[EAT])));
    const span = [Math.min(...rows.flat()) - 3.4 * spread, Math.max(...rows.flat()) + 3.4 * spread];
    const noise = normals(seed, 2 * DRAWS);
    document.querySelectorAll("#cake figure").forEach((figure, i) => {
      drawBells(find(".bells", figure), both[i], spread, span);
      const wrong = Array.from({ length: DRAWS }, (_, draw) => {
        const row = shaken(both[i].q[0], noise.slice(2 * draw, 2 * draw + 2), sigma);
        return both[i].settled && greedy(row) === EAT;
      });
      const waffle = find(".waffle", figure), count = wrong.filter(Boolean).length;
      waffle.replaceChildren();
      wrong.forEach((is, draw) => shape(waffle, "rect", { x: 20 * (draw % 20) + 2, y: 20 * Math.floor(draw / 20) + 2, width: 16, height: 16, rx: 3, class: is ? "wrong" : "" }));
      if (both[i].settled) say(find(".verdict", figure), count, `of ${DRAWS} draws of noise make it eat the cake`, count > 0);
      else say(find(".verdict", figure), "–", "no Q-values", true);
    });
  }

  function drawBells(svg, { q: [row], settled }, spread, [low, high]) {
    const width = svg.clientWidth || 400, height = svg.clientHeight || 160, base = height - 34, top = 30;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    shape(svg, "path", { class: "base", d: `M0 ${base}H${width}` });
    if (!settled) {
      shape(svg, "text", { class: "lost", x: width / 2, y: base - 30 }, "the values do not converge");
      svg.setAttribute("aria-label", "The values do not converge.");
      return;
    }
    const X = (v) => ((v - low) / (high - low)) * width, Y = (density) => base - density * (base - top);
    const bell = (middle, v) => Math.exp(-(((v - middle) / spread) ** 2) / 2);
    const places = Array.from({ length: 241 }, (_, i) => low + ((high - low) * i) / 240);
    const area = (density) => `M0 ${base}L${places.map((v) => `${X(v).toFixed(1)} ${Y(density(v)).toFixed(1)}`).join("L")}L${width} ${base}Z`;
    const [eat, abstain] = row;
    shape(svg, "path", { class: "curve", d: area((v) => bell(abstain, v)) });
    shape(svg, "path", { class: "curve cake", d: area((v) => bell(eat, v)) });
    shape(svg, "path", { class: "overlap", d: area((v) => Math.min(bell(eat, v), bell(abstain, v))) });
    const from = X(eat), to = X(abstain), middle = Math.min(Math.max((from + to) / 2, 40), width - 40);
    shape(svg, "path", { class: "gap", d: `M${from} ${top - 12}v8m0 -4H${to}m0 -4v8` });
    shape(svg, "text", { class: "figure", x: middle, y: top - 17 }, `gap ${short(abstain - eat)}`);
    // Labels that would overlap are placed one below the other.
    const close = to - from < 80, inside = (x) => Math.min(Math.max(x, 28), width - 28);
    shape(svg, "text", { x: inside(from), y: base + 15 }, "cake");
    shape(svg, "text", { x: inside(to), y: base + (close ? 30 : 15) }, "abstain");
    svg.setAttribute("aria-label", `Cake is worth ${short(eat)} and abstaining ${short(abstain)}: a gap of ${short(abstain - eat)}.`);
  }

  // ---- The garden ----
  const columns = GARDEN[0].length, signs = [...GARDEN.join("")], SIZE = 100, SHAKES = 200;
  const fields = signs.flatMap((sign, x) => (sign === "." ? [x] : []));
  const boards = [...document.querySelectorAll("#garden figure")].map((figure) => ({ figure, ...makeBoard(find(".board", figure)) }));

  function makeBoard(svg) {
    svg.setAttribute("viewBox", `0 0 ${columns * SIZE} ${GARDEN.length * SIZE}`);
    const grounds = new Map(), arrows = new Map(), rings = new Map();
    signs.forEach((sign, x) => {
      const left = SIZE * (x % columns), top = SIZE * Math.floor(x / columns), g = shape(svg, "g", { transform: `translate(${left} ${top})` });
      const kind = { ".": "field", "#": "hedge", O: "pond", H: "field" }[sign];
      const ground = shape(g, "rect", { x: 3, y: 3, width: SIZE - 6, height: SIZE - 6, rx: 14, class: kind, "--p": 100 });
      if (sign === ".") grounds.set(x, { ground, title: shape(ground, "title", {}) });
      if (sign === "#") for (const [cx, cy, r] of [[30, 34, 17], [66, 30, 19], [48, 62, 22], [76, 70, 13], [24, 74, 12]]) shape(g, "circle", { cx, cy, r, class: "leaf" });
      if (sign === "O") for (const y of [36, 54, 72]) shape(g, "path", { class: "wave", d: `M22 ${y}q9 -9 18 0t18 0t18 0` });
      if (sign === "H") {
        shape(g, "path", { class: "wall", d: "M26 48H74V80H26z" });
        shape(g, "path", { class: "home", d: "M50 16L84 50H16z" });
        shape(g, "path", { class: "door", d: "M43 58H57V80H43z" });
      }
    });
    for (const x of fields) {
      const where = { "--x": `${SIZE * ((x % columns) + 0.5)}px`, "--y": `${SIZE * (Math.floor(x / columns) + 0.5)}px` };
      rings.set(x, shape(svg, "circle", { class: "ring", cx: SIZE * ((x % columns) + 0.5), cy: SIZE * (Math.floor(x / columns) + 0.5), r: 42 }));
      arrows.set(x, shape(svg, "path", { class: "arrow", d: "M0 26V-24M-17 -8L0 -26L17 -8", ...where }));
    }
    const lost = shape(svg, "text", { class: "lost", x: (columns * SIZE) / 2, y: GARDEN.length * 50 }, "the values do not converge");
    return { svg, grounds, arrows, rings, lost };
  }

  function drawGarden(name, settings, sigma) {
    const truth = solution("garden", "bellman", settings).q, actions = truth[0].length;
    const both = ["bellman", name].map((each) => solution("garden", each, settings));
    const values = fields.map((x) => Math.max(...truth[x])), low = Math.min(...values), high = Math.max(...values);
    const settled = both.filter((one) => one.settled);
    const widest = Math.max(...settled.flatMap((one) => fields.map((x) => actionGap(one.q[x]))), 1e-12);
    const noise = normals(seed + 7919, SHAKES * signs.length * actions);
    const mistakes = ({ q }, shake) => fields.filter((x) => {
      const at = (shake * signs.length + x) * actions;
      return isWrong(truth[x], greedy(shaken(q[x], noise.slice(at, at + actions), sigma)));
    });
    boards.forEach(({ figure, svg, grounds, arrows, rings, lost }, i) => {
      const one = both[i], wrong = new Set(one.settled ? mistakes(one, 0) : []);
      lost.toggleAttribute("hidden", one.settled);
      for (const x of fields) {
        const v = Math.max(...one.q[x]), gap = actionGap(one.q[x]), at = x * actions;
        const a = greedy(shaken(one.q[x], noise.slice(at, at + actions), sigma));
        grounds.get(x).ground.style.setProperty("--p", one.settled ? Math.min(Math.max((100 * (v - low)) / (high - low || 1), 0), 100) : 0);
        grounds.get(x).title.textContent = one.settled ? `worth ${short(v)}, gap ${short(gap)}` : "";
        const arrow = arrows.get(x);
        arrow.toggleAttribute("hidden", !one.settled);
        arrow.setAttribute("stroke-width", (4 + 15 * Math.sqrt(gap / widest)).toFixed(2));
        arrow.style.setProperty("--turn", `${90 * a}deg`);
        arrow.classList.toggle("wrong", wrong.has(x));
        rings.get(x).toggleAttribute("hidden", !wrong.has(x));
      }
      let total = 0;
      if (one.settled) for (let shake = 0; shake < SHAKES; shake++) total += mistakes(one, shake).length;
      const share = one.settled ? (100 * total) / (SHAKES * fields.length) : 0;
      const count = one.settled ? String(wrong.size) : "–";
      say(find(".tally", figure), count, one.settled ? `of ${fields.length} arrows are wrong` : "no Q-values", wrong.size > 0 || !one.settled);
      find(".meter i", figure).style.setProperty("--p", share);
      find(".note", figure).textContent = one.settled ? `${share.toFixed(1)}% over ${SHAKES} draws of noise` : "";
      svg.setAttribute("aria-label", one.settled ? `${count} of ${fields.length} arrows are wrong; ${share.toFixed(1)}% over ${SHAKES} draws.` : "The values do not converge.");
    });
  }

  // ---- The bicycles ----
  const recorded = JSON.parse(find("#episodes").textContent);
  find("#made-by").textContent = recorded.command;
  find("#made").textContent = recorded.made;
  const clock = find("#clock"), play = find("#play"), DURATION = Number(clock.max), PACE = 24; // seconds of riding a second
  const tracks = Object.entries(recorded.episodes).map(([, episodes], i) => ({
    figure: document.querySelectorAll("#bicycle figure")[i],
    episodes: episodes.map(({ east, north, outcome, seconds }) => {
      let x = 0, y = 0;
      const places = east.map((step, k) => { x += step; y += north[k]; return [x / recorded.tenths, y / recorded.tenths]; });
      const times = places.map((_, k) => Math.min(k * recorded.every, seconds));
      return { places, times, outcome, seconds };
    }),
  }));

  // Position of an episode at a time, and the part of the path up to there.
  function at({ places, times }, t) {
    const next = times.findIndex((time) => time >= t);
    if (next < 0) return { place: places.at(-1), behind: places.length };
    if (next === 0) return { place: places[0], behind: 1 };
    const part = (t - times[next - 1]) / (times[next] - times[next - 1] || 1), [a, b] = [places[next - 1], places[next]];
    return { place: [a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])], behind: next };
  }

  function drawEpisodes(t) {
    for (const { figure, episodes } of tracks) {
      const canvas = find("canvas", figure), ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
      const pen = canvas.getContext("2d"), [ink, own, soft] = [figure, find(".title", figure), find(".player label")].map((one) => getComputedStyle(one).color);
      const now = episodes.map((episode) => at(episode, t));
      // The camera shows the goal, the start and all paths so far.
      let west = -260, east = 260, south = -1090, north = 20;
      episodes.forEach(({ places }, i) => {
        for (const [x, y] of [...places.slice(0, now[i].behind), now[i].place]) {
          west = Math.min(west, x - 60); east = Math.max(east, x + 60); south = Math.min(south, y - 60); north = Math.max(north, y + 20);
        }
      });
      // Leave room for the flag above the map and for the scale below it.
      const roof = 30, floor = height - 24, scale = Math.min(width / (east - west), (floor - roof) / (north - south));
      const X = (x) => width / 2 + (x - (east + west) / 2) * scale, Y = (y) => (roof + floor) / 2 - (y - (north + south) / 2) * scale;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      pen.lineJoin = pen.lineCap = "round";
      // Grid lines at fixed distances show the zoom.
      pen.strokeStyle = soft;
      pen.globalAlpha = 0.16;
      pen.lineWidth = 1;
      pen.beginPath();
      for (let y = -5000; y <= 1000; y += 250) { pen.moveTo(0, Y(y)); pen.lineTo(width, Y(y)); }
      for (let x = -5000; x <= 5000; x += 250) { pen.moveTo(X(x), 0); pen.lineTo(X(x), height); }
      pen.stroke();
      pen.globalAlpha = 1;
      const goal = [X(0), Y(0)], radius = Math.max(recorded.goal * scale, 7);
      pen.fillStyle = "#2f9e5f";
      pen.beginPath(); pen.arc(...goal, radius, 0, 7); pen.fill();
      pen.strokeStyle = ink;
      pen.lineWidth = 1.5;
      pen.beginPath(); pen.moveTo(...goal); pen.lineTo(goal[0], goal[1] - 22); pen.stroke();
      pen.beginPath(); pen.moveTo(goal[0], goal[1] - 22); pen.lineTo(goal[0] + 14, goal[1] - 17); pen.lineTo(goal[0], goal[1] - 12); pen.fill();
      pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
      pen.fillStyle = soft;
      pen.fillText("goal", goal[0] + 18, goal[1] - 8);
      pen.textAlign = "center";
      pen.fillText("start", X(0), Y(-recorded.distance) + 26);
      pen.textAlign = "start";
      pen.fillText("250 m", 14 + 250 * scale, height - 8);
      pen.strokeStyle = soft;
      const end = 8 + 250 * scale, line = height - 12;
      pen.beginPath(); pen.moveTo(8, line - 4); pen.lineTo(8, line + 4); pen.moveTo(8, line); pen.lineTo(end, line); pen.moveTo(end, line - 4); pen.lineTo(end, line + 4); pen.stroke();
      pen.strokeStyle = pen.fillStyle = own;
      episodes.forEach((episode, i) => {
        const { place, behind } = now[i], way = [...episode.places.slice(0, behind), place];
        pen.globalAlpha = 0.55;
        pen.lineWidth = 1.6;
        pen.beginPath();
        way.forEach(([x, y], k) => (k ? pen.lineTo(X(x), Y(y)) : pen.moveTo(X(x), Y(y))));
        pen.stroke();
        pen.globalAlpha = 1;
        if (t >= episode.seconds && episode.outcome === "goal") return;
        // A bicycle seen from above, pointing in its direction of travel.
        const [px, py] = way.at(-2) ?? episode.places[0], [nx, ny] = behind < 2 ? episode.places[1] : place;
        pen.save();
        pen.translate(X(place[0]), Y(place[1]));
        pen.rotate(Math.atan2(nx - px, ny - py));
        pen.beginPath(); pen.moveTo(0, -8); pen.lineTo(5, 6); pen.lineTo(0, 3); pen.lineTo(-5, 6); pen.closePath(); pen.fill();
        pen.restore();
      });
      const home = episodes.filter((episode) => episode.outcome === "goal" && t >= episode.seconds).length;
      const far = now.map(({ place: [x, y] }, i) => (t >= episodes[i].seconds && episodes[i].outcome === "goal" ? 0 : Math.hypot(x, y)));
      const mean = Math.round(far.reduce((sum, d) => sum + d, 0) / far.length);
      const rest = home === episodes.length ? "reached the goal" : `reached the goal; ${minus(mean.toLocaleString("en-US"))} m to go on average`;
      say(find(".verdict", figure), `${home} of ${episodes.length}`, rest, false);
      canvas.setAttribute("aria-label", `After ${Math.round(t)} seconds ${home} of ${episodes.length} ${rest}.`);
    }
    clock.value = String(t);
    find("output[for=clock]").value = `${Math.round(t)} s`;
  }

  let time = calm.matches ? DURATION : 0, before = null, running = false, begun = false;
  const label = () => { play.textContent = running ? "Pause" : time >= DURATION ? "Replay" : "Play"; };
  function tick(stamp) {
    if (!running) return;
    if (before !== null) time = Math.min(time + (PACE * Math.min(stamp - before, 100)) / 1000, DURATION);
    before = stamp;
    drawEpisodes(time);
    if (time >= DURATION) running = false;
    label();
    requestAnimationFrame(tick);
  }
  function start() { begun = running = true; before = null; if (time >= DURATION) time = 0; label(); requestAnimationFrame(tick); }
  play.addEventListener("click", () => { if (running) { running = false; label(); } else start(); });
  clock.addEventListener("input", () => { begun = true; running = false; time = Number(clock.value); drawEpisodes(time); label(); });
  // The animation starts when it scrolls into view. With reduced motion, the full paths are shown instead.
  new IntersectionObserver(([{ isIntersecting }]) => { if (isIntersecting && !begun && !calm.matches) start(); }, { threshold: 0.5 }).observe(find("#bicycle"));

  const redraw = () => { change(); drawEpisodes(time); };
  new ResizeObserver(redraw).observe(find("#cake"));
  // A canvas does not follow CSS colours, so it is redrawn when the theme changes.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  draw();
  drawEpisodes(time);
  label();
});
