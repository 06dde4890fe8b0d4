/** Metrics as Prometheus reads them: text format 0.0.4. */

import type { Histogram } from "./histogram.ts";
import type { Totals } from "./metrics.ts";

export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** The buckets of the histogram: every doubling from a quarter of a millisecond to sixteen seconds. */
const BUCKET_MS_MIN = 0.25;
const BUCKET_MS_MAX = 16_384;

export interface Observed {
  readonly totals: Totals;
  readonly waiting: number;
  readonly storeBytes: number | undefined;
  readonly version: string;
  readonly engine: string;
}

export function formatMetrics(observed: Observed): string {
  const { totals, waiting, storeBytes, version, engine } = observed;
  return [
    family("plantstore_info", "gauge", "The version and the engine of the store, as labels.", [
      [labels({ version, engine }), 1],
    ]),
    family(
      "plantstore_requests_total",
      "counter",
      "Requests that were answered, by method, path and status.",
      totals.requests.map(({ method, path, status, count }) => [
        labels({ method, path, status }),
        count,
      ]),
    ),
    family(
      "plantstore_create_seconds",
      "histogram",
      "Time from the arrival of a new plant to its answer, that is, until it is on disk.",
      histogramOf(totals.creates),
    ),
    family("plantstore_writes_waiting", "gauge", "Writes that wait for a commit.", [["", waiting]]),
    family(
      "plantstore_store_bytes",
      "gauge",
      "Size of the store, its log included.",
      storeBytes === undefined ? [] : [["", storeBytes]],
    ),
    family("process_resident_memory_bytes", "gauge", "Memory of the process.", [
      ["", process.memoryUsage.rss()],
    ]),
    family("process_start_time_seconds", "gauge", "When the process started, since 1970.", [
      ["", performance.timeOrigin / 1000],
    ]),
  ].join("");
}

type Line = readonly [suffixAndLabels: string, value: number];

function family(name: string, type: string, help: string, lines: readonly Line[]): string {
  const head = `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  return head + lines.map(([suffix, value]) => `${name}${suffix} ${value}\n`).join("");
}

function histogramOf(histogram: Histogram): Line[] {
  const buckets = histogram
    .buckets(BUCKET_MS_MIN, BUCKET_MS_MAX)
    .map(({ upToMs, count }): Line => [`_bucket${labels({ le: upToMs / 1000 })}`, count]);
  return [
    ...buckets,
    [`_bucket${labels({ le: "+Inf" })}`, histogram.count],
    ["_sum", histogram.sumMs / 1000],
    ["_count", histogram.count],
  ];
}

function labels(values: Readonly<Record<string, string | number>>): string {
  const pairs = Object.entries(values).map(([name, value]) => `${name}="${escape(String(value))}"`);
  return `{${pairs.join(",")}}`;
}

const escape = (text: string): string => text.replace(/["\\]/g, "\\$&").replaceAll("\n", "\\n");
