// What a page of the book does besides its widgets.
(function () {
  // Code, tables and formulas that are wider than the screen scroll by themselves: then
  // also with the keyboard.
  function reachScrolled() {
    for (const box of document.querySelectorAll(
      ".bd-article pre, .bd-article table, .bd-article div.math, " +
        ".bd-article mjx-container, .cell_output > .output",
    )) {
      const wider = box.scrollWidth > box.clientWidth + 1;
      if (wider && getComputedStyle(box).overflowX !== "visible") box.tabIndex = 0;
      else if (box.tabIndex === 0) box.removeAttribute("tabindex");
    }
  }
  let waiting;
  const soon = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(reachScrolled);
  };
  window.addEventListener("load", () => {
    soon();
    window.MathJax?.startup?.promise?.then(soon);
  });
  window.addEventListener("resize", soon);
  for (const opened of ["toggle", "click"]) document.addEventListener(opened, soon, true);

  // From a disk, browsers let no page read another: a search does without excerpts.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  // Paper is white, whatever the screen is.
  const root = document.documentElement;
  let theme;
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    root.dataset.theme = theme;
  });
})();
