// Loaded between require.js and the widget manager: where widgets find their code,
// and two things that the widget manager leaves out on a plain page.
(function () {
  const here = new URL(".", document.currentScript.src).href;
  window.__jupyter_widgets_assets_path__ = here + "vendor/";
  window.requirejs.config({
    baseUrl: here + "vendor",
    map: { "*": { anywidget: here + "vendor/anywidget.js" } },
  });

  // The widget manager speaks to MathJax 2; the book uses MathJax 3.
  const mathjax = (window.MathJax = window.MathJax || {});
  mathjax.Hub = mathjax.Hub || {
    Queue(call) {
      const element = call[2];
      const ready = window.MathJax.startup && window.MathJax.startup.promise;
      if (ready && window.MathJax.typesetPromise) {
        ready.then(() => window.MathJax.typesetPromise([element]));
      }
    },
  };

  // A slider is announced by the label that stands beside it.
  function nameSliders(root) {
    for (const handle of root.querySelectorAll('.noUi-handle[role="slider"]')) {
      if (handle.hasAttribute("aria-label")) continue;
      const box = handle.closest(".jupyter-widgets");
      const label = box && box.querySelector(".widget-label");
      const text = label && label.textContent.trim();
      if (text) handle.setAttribute("aria-label", text);
    }
  }
  document.addEventListener("DOMContentLoaded", () => {
    nameSliders(document);
    new MutationObserver(() => nameSliders(document)).observe(document.body, {
      childList: true,
      subtree: true,
    });
  });
})();
