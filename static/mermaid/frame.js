// The inside of the frame: gets the source of one diagram, draws it, and says how high it is.

const tell = (message) => window.parent.postMessage(message, "*");

window.addEventListener("message", async (event) => {
  if (event.source !== window.parent) return;
  const { text, dark, paper } = event.data;
  document.documentElement.style.setProperty("--paper", paper);
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: dark ? "dark" : "neutral" });
  try {
    const { svg } = await mermaid.render("diagram", text);
    const drawn = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
    document.body.replaceChildren(drawn);
    tell({ height: Math.ceil(drawn.getBoundingClientRect().height) });
  } catch {
    tell({ failed: true });
  }
});

tell({ ready: true });
