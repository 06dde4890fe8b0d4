/** The language is loaded before the modules with texts in their constants. Bun's hot reload needs this order spelled out. */

import { language, loadTexts, t } from "./text/text.ts";

await loadTexts();
const { documentElement: root } = document;
root.lang = language;
// The style sheet shows it at fields.
root.style.setProperty("--required", JSON.stringify(` ${t.shared.required}`));

const { start } = await import("./app.tsx");
start();
