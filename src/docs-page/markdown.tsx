/** The part of Markdown that the description uses: paragraphs, lists, tables and code. */

import type { ComponentChildren, JSX } from "preact";

export function Markdown({ text }: { readonly text: string }): JSX.Element {
  const blocks = text.trim().split(/\n{2,}/);
  return (
    <>
      {blocks.map((block) => {
        const lines = block.split("\n");
        if (block.startsWith("|")) return <Table key={block} lines={lines} />;
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

function Table({ lines }: { readonly lines: readonly string[] }): JSX.Element {
  const [head = [], , ...rows] = lines.map((line) => line.split("|").slice(1, -1));
  return (
    <table>
      <thead>
        <tr>
          {head.map((cell) => (
            <th key={cell} scope="col">
              {cell}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row[0]}>
            {row.map((cell, at) => (
              <td key={at}>{markCode(cell.trim())}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
