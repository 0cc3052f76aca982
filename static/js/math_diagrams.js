// Formulas and diagrams. Their libraries are large and loaded only for messages that need them.

const places = document.getElementById("math-diagrams")?.dataset ?? {};
const TALLEST = 2_000;
let katexLoading = null;

function load(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
}

function loadKatex() {
  const styles = document.createElement("link");
  styles.rel = "stylesheet";
  styles.href = places.katexCss;
  document.head.append(styles);
  return load(places.katex);
}

/** KaTeX sets styles through the DOM, which our policy allows, as long as it makes nodes and not HTML. */
async function typeset(formulas) {
  for (const formula of formulas) formula.dataset.tex = formula.textContent;
  katexLoading ??= loadKatex();
  await katexLoading;
  for (const formula of formulas) {
    const isBlock = formula.classList.contains("block");
    katex.render(formula.dataset.tex, formula, { displayMode: isBlock, throwOnError: false, strict: "ignore" });
    if (isBlock) formula.tabIndex = 0; // wide formulas scroll
  }
}

function draw(source) {
  const frame = document.createElement("iframe");
  const { theme } = document.documentElement.dataset;
  const isDark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  frame.setAttribute("sandbox", "allow-scripts");
  frame.className = "diagram";
  frame.title = places.diagram;
  frame.src = places.mermaid;
  const heard = ({ source: from, data }) => {
    if (from !== frame.contentWindow) return;
    if (data.ready) {
      const paper = getComputedStyle(source.closest(".code")).backgroundColor;
      frame.contentWindow.postMessage({ text: source.textContent, dark: isDark, paper }, "*");
    } else if (data.failed) frame.remove();
    else {
      frame.style.height = `${Math.min(data.height, TALLEST)}px`;
      offerSource(source.closest(".code"));
    }
    if (!data.ready) window.removeEventListener("message", heard);
  };
  window.addEventListener("message", heard);
  source.before(frame);
}

function offerSource(code) {
  code.classList.add("drawn");
  code.querySelector(".code-lang").after(document.getElementById("show-source").content.cloneNode(true));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-show-source]");
  if (button) button.ariaPressed = String(button.closest(".code").toggleAttribute("data-source"));
});

const nearby = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    nearby.unobserve(target);
    draw(target);
  }
});

function enrich(root) {
  const isDone = (element) => !element.closest(".live, .tail");
  const formulas = [...root.querySelectorAll(".math:not([data-tex])")].filter(isDone);
  if (formulas.length) typeset(formulas);
  for (const source of [...root.querySelectorAll("pre.mermaid-source:not([data-seen])")].filter(isDone)) {
    source.dataset.seen = "";
    nearby.observe(source);
  }
}

if (places.katex) {
  document.addEventListener("htmx:load", (event) => enrich(event.detail.elt));
  enrich(document);
}
