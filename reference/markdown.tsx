/** The part of Markdown that the description uses: paragraphs, lists, tables and code. */

import type { ComponentChildren, JSX } from "preact";
import { Table } from "../console/view/controls.tsx";

const trim = (text: string): string => text.trim();

export function Markdown({ text }: { readonly text: string }): JSX.Element {
  const blocks = text.trim().split(/\n{2,}/);
  return (
    <>
      {blocks.map((block) => {
        const lines = block.split("\n");
        if (block.startsWith("|")) {
          const [heads = [], , ...rows] = lines.map((line) =>
            line.slice(1, -1).split("|").map(trim),
          );
          return (
            <Table
              isListing
              key={block}
              label="Errors"
              heads={heads}
              rows={rows.map((cells) =>
                cells.map((cell, at) =>
                  at === 0 ? (
                    <span id={`/errors/${/\d+/.exec(cell)?.[0]}`}>{markCode(cell)}</span>
                  ) : (
                    markCode(cell)
                  ),
                ),
              )}
            />
          );
        }
        if (!block.startsWith("- ")) return <p key={block}>{markCode(block)}</p>;
        return (
          <ul key={block}>
            {lines.map((line) => (
              <li key={line}>{markCode(line.slice(2))}</li>
            ))}
          </ul>
        );
      })}
    </>
  );
}

export const markCode = (text: string): ComponentChildren =>
  text.split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part));
