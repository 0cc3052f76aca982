// The REST API reference: Swagger UI, read-only, in the colour scheme of the page.

const root = document.documentElement;
const scheme = matchMedia("(prefers-color-scheme: dark)");

function followScheme() {
  const theme = root.dataset.theme;
  root.classList.toggle("dark-mode", theme === "dark" || (theme !== "light" && scheme.matches));
}

scheme.addEventListener("change", followScheme);
followScheme();

const place = document.getElementById("api-reference");
SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  defaultModelsExpandDepth: -1,
  supportedSubmitMethods: [],
});
