// A text whose tokens tell how they came to be, and what the marks mean.

const MARKS = {
  accepted: "accepted guess",
  correction: "correction by the target",
  bonus: "bonus token of the target",
  plain: "token of the target",
};

// Write `tokens`, pairs of a piece and its kind, after the prompt; then their legend.
function writeTokens(text, legend, prompt, tokens) {
  const kinds = new Set(tokens.map(([, kind]) => kind));
  text.replaceChildren(
    element("span", { class: "specdec-prompt" }, prompt),
    ...tokens.map(([piece, kind]) =>
      element("span", { class: "specdec-" + kind }, piece)),
  );
  legend.replaceChildren(
    ...Object.entries(MARKS)
      .filter(([kind]) => kinds.has(kind))
      .flatMap(([kind, what]) => [element("span", { class: "specdec-" + kind }, what), " "]),
  );
}
