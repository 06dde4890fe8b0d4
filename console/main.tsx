/** The language is loaded first: the rest has texts in its constants. Bun's hot reload needs this order spelled out. */

import { language, t } from "./text/text.ts";

const { documentElement: root } = document;
root.lang = language;
// The style sheet shows it at fields.
root.style.setProperty("--required", JSON.stringify(` ${t.shared.required}`));

await import("./app.tsx");
