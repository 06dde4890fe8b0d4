/** The language is loaded first: the rest has texts in its constants. Bun's hot reload needs this order spelled out. */

import { language } from "./text/text.ts";

document.documentElement.lang = language;

await import("./app.tsx");
