/** Import: choose a file, see how it is understood, watch it go in, read what was refused. */

import type { JSX } from "preact";
import { current } from "../state/import.ts";
import { ImportChoose } from "./import-choose.tsx";
import { ImportMap } from "./import-map.tsx";
import { ImportProgress } from "./import-progress.tsx";

export function ImportView(): JSX.Element {
  const now = current.value;
  return (
    <div class="single import">
      <h1>Import</h1>
      {(now.step === "choose" || now.step === "reading") && (
        <ImportChoose isReading={now.step === "reading"} />
      )}
      {now.step === "map" && <ImportMap file={now.file} preview={now.preview} />}
      {(now.step === "running" || now.step === "ended") && <ImportProgress now={now} />}
    </div>
  );
}
