// The closed form of the speedup: the same as specdec_lib.theory, computed in the page.

// 1 + alpha + ... + alpha^k
export function expectedTokens(alpha, k) {
  let sum = 0;
  for (let i = 0; i <= k; i++) sum += alpha ** i;
  return sum;
}

// T(n) / T(1), a straight line.
export function verifyCost(slope, n) {
  return 1 + slope * (n - 1);
}

export function speedup(alpha, k, draftCost, slope) {
  return expectedTokens(alpha, k) / (k * draftCost + verifyCost(slope, k + 1));
}

// The best of 0 .. maxK, the smallest among equals.
export function bestK(alpha, draftCost, slope, maxK) {
  let best = 0;
  for (let k = 1; k <= maxK; k++) {
    if (speedup(alpha, k, draftCost, slope) > speedup(alpha, best, draftCost, slope)) {
      best = k;
    }
  }
  return best;
}

// Round steps for an axis from 0 to `top`, about five of them.
export function ticks(top) {
  const rough = top / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough);
  const found = [];
  for (let i = 0; i * step <= top; i++) found.push(Number((i * step).toPrecision(6)));
  return found;
}

const WIDTH = 400, HEIGHT = 240, LEFT = 38, RIGHT = 12, TOP = 22, BOTTOM = 40;

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(svg, curve, k, best) {
  const last = Math.max(1, curve.length - 1);
  const top = 1.1 * Math.max(1.2, ...curve);
  const x = (at) => LEFT + (at / last) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const parts = [];
  for (const value of ticks(top)) {
    parts.push(
      shape("line", {
        class: "specdec-grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value),
      }),
      shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value),
    );
  }
  const every = Math.ceil(curve.length / 9);
  curve.forEach((_, at) => {
    if (at % every) return;
    const place = { x: x(at), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" };
    parts.push(shape("text", place, at));
  });
  parts.push(
    shape("line", {
      class: "specdec-one", x1: LEFT, x2: WIDTH - RIGHT, y1: y(1), y2: y(1),
    }),
    shape("text", { x: LEFT, y: 12 }, "speedup"),
    shape(
      "text",
      { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" },
      "draft length k",
    ),
    shape("line", {
      class: "specdec-now", x1: x(k), x2: x(k), y1: y(0), y2: y(curve[k]),
    }),
    shape("polyline", {
      class: "specdec-curve",
      points: curve.map((value, at) => `${x(at).toFixed(2)},${y(value).toFixed(2)}`)
        .join(" "),
    }),
  );
  curve.forEach((value, at) =>
    parts.push(shape("circle", {
      class: at === k ? "specdec-dot specdec-here" : "specdec-dot",
      cx: x(at), cy: y(value), r: at === k ? 5 : 2.5,
    })),
  );
  const [bx, by] = [x(best), y(curve[best])];
  const anchor = best < last / 5 ? "start" : best > (last * 4) / 5 ? "end" : "middle";
  parts.push(
    shape("path", {
      class: "specdec-best",
      d: `M${bx},${by - 9}L${bx + 9},${by}L${bx},${by + 9}L${bx - 9},${by}Z`,
    }),
    shape(
      "text",
      { x: bx, y: by - 13, "text-anchor": anchor, class: "specdec-strong" },
      `best k = ${best}`,
    ),
  );
  svg.replaceChildren(...parts);
}

function render({ model, el }) {
  const figure = (name) => {
    const value = element("dd", { "data-name": name });
    return [value, element("div", {}, element("dt", {}, name), value)];
  };
  const [tokens, tokensBox] = figure("Tokens per call");
  const [gain, gainBox] = figure("Speedup");
  const [best, bestBox] = figure("Best k");
  const svg = shape("svg", { role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  const caption = element("figcaption", { "aria-live": "polite" });

  const show = () => {
    const all = model.get("sliders");
    const at = model.get("indices");
    const [k, alpha, cost, slope] = all.map(({ values }, i) => values[at[i]]);
    const curve = all[0].values.map((each) => speedup(alpha, each, cost, slope));
    const kBest = bestK(alpha, cost, slope, curve.length - 1);
    const put = (place, text, ...values) => {
      place.textContent = text;
      place.dataset.values = JSON.stringify(values);  // in full, for who checks them
    };
    put(tokens, expectedTokens(alpha, k).toFixed(2), expectedTokens(alpha, k));
    put(gain, curve[k].toFixed(2) + " ×", curve[k]);
    put(best, `${kBest} (${curve[kBest].toFixed(2)} ×)`, kBest, curve[kBest]);
    draw(svg, curve, k, kBest);
    const settings = all.map(({ label, texts }, i) => `${label} = ${texts[at[i]]}`);
    const text =
      `${settings.join(", ")}: ${expectedTokens(alpha, k).toFixed(2)} tokens per call, ` +
      `speedup ${curve[k].toFixed(2)}. ` +
      `The best k is ${kBest}, with speedup ${curve[kBest].toFixed(2)}` +
      (kBest === 0 ? ": guessing does not pay." : ".");
    svg.setAttribute("aria-label", "Speedup against draft length. " + text);
    caption.textContent = text;
  };
  const bound = sliders(model, show);
  show();
  el.classList.add("specdec-widget");
  el.append(
    bound.box,
    element("dl", {}, tokensBox, gainBox, bestBox),
    element("figure", { class: "specdec-figure specdec-drawn" }, svg, caption),
  );
  return bound.close;
}

export default { render };
