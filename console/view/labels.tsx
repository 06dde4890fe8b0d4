/** Prints the selected plants as labels. The search finds the code of a label when it is scanned. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { pickFilter } from "../../src/domain/filter.ts";
import type { PlantCount } from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { call, explain, Explained } from "../api/service.ts";
import type * as drawing from "../labels.ts";
import { formatTotal } from "../state/format.ts";
import { Modal } from "../state/dialog.ts";
import { personal } from "../state/person.ts";
import { keep, recall } from "../state/storage.ts";
import { readSubject, type Subject } from "../state/subject.ts";
import { fill, plural, t } from "../text/text.ts";
import { Button, Choice, Field, Form, Notice } from "./controls.tsx";
import { useSubmission } from "./form.tsx";
import { Dialog, loadDrawing } from "./manage.tsx";
import { useRead } from "./read.ts";

const papers = { a4: "A4", letter: "Letter" } as const;

interface Sheet {
  /** The maker's, none for a roll. */
  readonly name?: string;
  /** The stylesheet has a page of this name. */
  readonly page: keyof typeof papers | "roll62";
  /** In millimetres. */
  readonly width: number;
  readonly height: number;
  readonly columns: number;
  readonly rows: number;
  readonly top: number;
  readonly left: number;
  /** Between two columns. */
  readonly gap: number;
}

/** By the makers' templates. */
const sheets = {
  L7160: {
    name: "Avery L7160",
    page: "a4",
    width: 63.5,
    height: 38.1,
    columns: 3,
    rows: 7,
    top: 15.15,
    left: 7.21,
    gap: 2.54,
  },
  L7651: {
    name: "Avery L7651",
    page: "a4",
    width: 38.1,
    height: 21.2,
    columns: 5,
    rows: 13,
    top: 10.7,
    left: 4.67,
    gap: 2.54,
  },
  L4732: {
    name: "Avery L4732",
    page: "a4",
    width: 35.6,
    height: 16.9,
    columns: 5,
    rows: 16,
    top: 13.3,
    left: 11,
    gap: 2.5,
  },
  L5160: {
    name: "Avery 5160",
    page: "letter",
    width: 66.7,
    height: 25.4,
    columns: 3,
    rows: 10,
    top: 12.7,
    left: 4.8,
    gap: 3.1,
  },
  roll62: {
    page: "roll62",
    width: 62,
    height: 29,
    columns: 1,
    rows: 1,
    top: 0,
    left: 0,
    gap: 0,
  },
} as const satisfies Record<string, Sheet>;

type SheetName = keyof typeof sheets;

function describeSheet({ name = "", page, width, columns, rows }: Sheet): string {
  if (page === "roll62") return fill(t.tools.roll, { width });
  return fill(t.tools.sheet, { name, count: columns * rows, paper: papers[page] });
}

interface Job {
  readonly plants: readonly Plant[];
  readonly sheet: Sheet;
  readonly draw: (id: string) => drawing.Code;
  /** Labels of the first sheet that are used already. */
  readonly used: number;
}

/** What the printer gets. */
const job = personal<Job | undefined>(undefined);
/** What is printed, while the dialog is open. */
export const labelled = new Modal<Subject>();

const LABELS_MAX = 1_000;
const KEY = "labels";

/** The label stock of this device. */
interface Stock {
  readonly sheet: SheetName;
  readonly code: "qr" | "barcode";
}

export function LabelsDialog(): JSX.Element | null {
  const stock = useSignal<Stock>({
    sheet: "L7160",
    code: "qr",
    ...(recall("localStorage", KEY) as Partial<Stock> | undefined),
  });
  const used = useSignal("0");
  const { isBusy, trouble, run } = useSubmission();
  const about = labelled.value;
  // If they cannot be read, printing says what is wrong.
  const counted = useRead(async (ended) => about && countSubject(about, ended), [about]);
  const sampled = useRead(async (ended) => about && readSample(about, ended), [about]);
  const count = counted.isStale ? undefined : counted.answer;
  const sample = sampled.isStale ? undefined : sampled.answer;
  if (about === undefined) return null;
  const sheet = sheets[stock.value.sheet] ?? sheets.L7160;
  const onSheet = sheet.columns * sheet.rows;
  const usedCount = onSheet === 1 ? 0 : Number(used.value);
  const isRight = Number.isInteger(usedCount) && usedCount >= 0 && usedCount < onSheet;
  const isTooMany = count !== undefined && count.count > LABELS_MAX;
  const put = (change: Partial<Stock>): void => {
    stock.value = { ...stock.value, ...change };
    keep("localStorage", KEY, stock.value);
  };
  const print = (): Promise<void> =>
    run(async () => {
      const plants = await readPlants(about);
      const draw = chooseCode(await loadDrawing(), stock.value);
      job.value = { plants, sheet, draw, used: usedCount };
      // The labels are rendered by then.
      await new Promise(requestAnimationFrame);
      globalThis.print();
    });
  return (
    <Dialog title={t.tools.printLabels} onClose={() => labelled.close()}>
      <Form onSubmit={() => isRight && void print()}>
        <Choice
          id="label-sheet"
          label={t.tools.labels}
          options={Object.entries(sheets).map(([key, each]) => [key, describeSheet(each)])}
          value={stock.value.sheet}
          onChange={(event) => put({ sheet: event.currentTarget.value as SheetName })}
        />
        <Choice
          id="label-code"
          label={t.tools.code}
          options={Object.entries(t.tools.codes)}
          value={stock.value.code}
          onChange={(event) => put({ code: event.currentTarget.value as Stock["code"] })}
        />
        {onSheet > 1 && (
          <Field
            id="label-used"
            label={t.tools.usedLabels}
            inputMode="numeric"
            value={used.value}
            fault={isRight ? undefined : fill(t.tools.usedLabelsFault, { max: onSheet - 1 })}
            onText={(text) => (used.value = text)}
          />
        )}
        {sample !== undefined && (
          <LabelPreview
            plant={sample.plant}
            sheet={sheet}
            draw={chooseCode(sample.script, stock.value)}
            used={isRight ? usedCount : 0}
          />
        )}
        {count !== undefined && !isTooMany && (
          <p role="status">{describeLabels(count.count, isRight ? usedCount : 0, onSheet)}</p>
        )}
        {isTooMany && (
          <Notice
            kind="warning"
            title={fill(t.tools.tooManyLabels, { count: formatTotal(count) })}
            text={fill(t.tools.labelsMax, { count: LABELS_MAX })}
          />
        )}
        <p class="faint">{t.tools.printHint}</p>
        {trouble.value !== undefined && (
          <Notice kind="fault" title={t.tools.notPrinted} text={explain(trouble.value)} />
        )}
        <div class="form-actions">
          <Button type="submit" kind="main" disabled={isBusy.value || isTooMany}>
            {t.tools.print}
          </Button>
        </div>
      </Form>
    </Dialog>
  );
}

/** "30 labels, on 2 sheets." */
function describeLabels(count: number, used: number, onSheet: number): string {
  const sheetCount = Math.ceil((used + count) / onSheet);
  const labels = plural(t.tools.labelCount, count);
  return onSheet === 1 ? `${labels}.` : plural(t.tools.labelsOnSheets, sheetCount, { labels });
}

const chooseCode = (script: typeof drawing, { code }: Stock): Job["draw"] =>
  code === "qr" ? script.drawQr : script.drawCode128;

async function countSubject(about: Subject, ended: AbortSignal): Promise<PlantCount> {
  const { plants, matching } = about;
  if (matching === undefined) return { count: plants.length, exact: true };
  const filter = pickFilter(matching.filter);
  const found = await call((client) => client.countPlants(filter, { signal: ended }));
  return { ...found, count: Math.max(0, found.count - matching.excepted) + plants.length };
}

/** The first of the plants. */
async function readSample(about: Subject, ended: AbortSignal) {
  const script = await loadDrawing();
  const [plant] = await call(async (client) => {
    for await (const block of readSubject(client, about, { signal: ended }))
      if (block.length > 0) return block;
    return [];
  });
  return plant && { plant, script };
}

interface LabelPreviewProps extends Omit<Job, "plants"> {
  readonly plant: Plant;
}

/** The first label in its size, and where it is on the sheet. */
function LabelPreview({ plant, sheet, draw, used }: LabelPreviewProps): JSX.Element {
  const { columns, rows, width, height } = sheet;
  return (
    <figure class="label-preview">
      <div class="label-paper" style={{ width: `${width}mm`, height: `${height}mm` }}>
        <PrintedLabel plant={plant} draw={draw} />
      </div>
      {columns * rows > 1 && (
        <svg
          class="sheet-map"
          viewBox={`0 0 ${columns * 10} ${rows * 6}`}
          role="img"
          aria-label={fill(t.tools.firstLabelPlace, { number: used + 1, count: columns * rows })}
        >
          {Array.from({ length: columns * rows }, (_, at) => {
            const [x, y] = [(at % columns) * 10, Math.floor(at / columns) * 6];
            const state = at < used ? "used" : at === used ? "first" : "free";
            return (
              <g key={at}>
                <rect class={`map-${state}`} x={x + 1} y={y + 1} width={8} height={4} />
                {state === "used" && <path class="map-cross" d={`M${x + 1} ${y + 1}l8 4`} />}
              </g>
            );
          })}
        </svg>
      )}
      <figcaption class="faint">{fill(t.tools.firstLabel, { width, height })}</figcaption>
    </figure>
  );
}

async function readPlants(about: Subject): Promise<Plant[]> {
  const plants: Plant[] = [];
  await call(async (client) => {
    for await (const block of readSubject(client, about, new AbortController())) {
      plants.push(...block);
      if (plants.length > LABELS_MAX)
        throw new Explained(fill(t.tools.labelsMax, { count: LABELS_MAX }));
    }
  });
  return plants;
}

/** Shown only in print. */
export function PrintedLabels(): JSX.Element | null {
  if (job.value === undefined || labelled.value === undefined) return null;
  const { plants, sheet, draw, used } = job.value;
  const { columns, rows, width, height, top, left, gap } = sheet;
  const cells = [...Array.from({ length: used }, () => undefined), ...plants];
  const onSheet = columns * rows;
  const pages = Array.from({ length: Math.ceil(cells.length / onSheet) }, (_, page) =>
    cells.slice(page * onSheet, (page + 1) * onSheet),
  );
  return (
    <div class="printed">
      {pages.map((page, at) => (
        <div
          key={at}
          class={`sheet sheet-${sheet.page}`}
          style={{
            gridTemplate: `repeat(${rows}, ${height}mm) / repeat(${columns}, ${width}mm)`,
            columnGap: `${gap}mm`,
            padding: `${top}mm 0 0 ${left}mm`,
          }}
        >
          {page.map((plant, index) => (
            <PrintedLabel key={index} plant={plant} draw={draw} />
          ))}
        </div>
      ))}
    </div>
  );
}

interface PrintedLabelProps {
  /** Undefined leaves the label empty. */
  readonly plant: Plant | undefined;
  readonly draw: Job["draw"];
}

function PrintedLabel({ plant, draw }: PrintedLabelProps): JSX.Element {
  if (plant === undefined) return <div />;
  const id = String(plant.id);
  const { width, height, path } = draw(id);
  return (
    <div class={width === height ? "printed-label" : "printed-label printed-bars"}>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        preserveAspectRatio={width === height ? undefined : "none"}
        shape-rendering="crispEdges"
      >
        <path d={path} />
      </svg>
      <div>
        <strong>{plant.name}</strong>
        <span>{id}</span>
        {plant.tag !== undefined && <span>{plant.tag}</span>}
      </div>
    </div>
  );
}
