/** The camera as a scanner, for phones and tablets. Browsers have one only on a secure origin. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type * as decoding from "../camera.ts";
import { loadScript } from "../api/page.ts";
import { Explained, explain } from "../api/service.ts";
import { Modal } from "../state/dialog.ts";
import { isScan } from "../state/scan.ts";
import { fill, t } from "../text/text.ts";
import { Button, Notice } from "./controls.tsx";
import { Dialog } from "./manage.tsx";
import { openCode } from "./scanner.ts";

const camera = new Modal<object>();

/** Null without a camera, or where the browser hides it. */
export function CameraButton(): JSX.Element | null {
  if (!isSecureContext || !("mediaDevices" in navigator)) return null;
  return <Button kind="plain" icon="camera" label={t.tools.scan} onClick={() => camera.open({})} />;
}

/** The text of a code in the video; undefined if there is none. */
type Decode = (video: HTMLVideoElement) => Promise<string | undefined>;

const FORMATS = ["qr_code", "ean_13", "code_128"];

/** Not in TypeScript's library yet (Shape Detection API). */
interface Detector {
  detect(source: HTMLVideoElement): Promise<readonly { readonly rawValue: string }[]>;
}
interface DetectorClass {
  new (options: { readonly formats: readonly string[] }): Detector;
  getSupportedFormats(): Promise<readonly string[]>;
}

async function openDetector(): Promise<Decode | undefined> {
  const { BarcodeDetector: Native } = globalThis as { BarcodeDetector?: DetectorClass };
  const formats = (await Native?.getSupportedFormats().catch(() => [])) ?? [];
  if (Native === undefined || !FORMATS.every((each) => formats.includes(each))) return undefined;
  const detector = new Native({ formats: FORMATS });
  return async (video) => (await detector.detect(video))[0]?.rawValue;
}

/** A larger picture takes longer to read, and shows no more of a label. */
const PIXELS_WIDE_MAX = 800;

async function openLibrary(): Promise<Decode> {
  const script = await loadScript<typeof decoding>("camera");
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  return async (video) => {
    const scale = Math.min(1, PIXELS_WIDE_MAX / video.videoWidth);
    const [width, height] = [video.videoWidth, video.videoHeight].map((each) =>
      Math.round(each * scale),
    ) as [number, number];
    if (context === null || width === 0) return undefined;
    if (canvas.width !== width || canvas.height !== height)
      Object.assign(canvas, { width, height });
    context.drawImage(video, 0, 0, width, height);
    return script.readCode(context.getImageData(0, 0, width, height));
  };
}

const troubles: Readonly<Record<string, string>> = t.tools.cameraTroubles;

async function openCamera(): Promise<MediaStream> {
  const video = { facingMode: "environment", width: { ideal: 1280 } };
  try {
    return await navigator.mediaDevices.getUserMedia({ video });
  } catch (error) {
    const said = troubles[error instanceof DOMException ? error.name : ""];
    throw said === undefined ? error : new Explained(said);
  }
}

/** Leaves the browser time for the picture and for clicks. */
const PAUSE_MS = 100;

/** Until it is stopped, or a code was read that may be an id. */
async function watch(
  video: HTMLVideoElement,
  stopped: AbortSignal,
  onOther: (text: string) => void,
): Promise<string | undefined> {
  // First: if it fails, the camera stays off.
  const decode = (await openDetector()) ?? (await openLibrary());
  if (stopped.aborted) return undefined;
  const stream = await openCamera();
  const stop = (): void => stream.getTracks().forEach((track) => track.stop());
  stopped.addEventListener("abort", stop);
  if (stopped.aborted) stop();
  video.srcObject = stream;
  await video.play().catch(() => undefined);
  while (!stopped.aborted) {
    const text = await decode(video).catch(() => undefined);
    if (text !== undefined && isScan(text)) return text;
    if (text !== undefined) onOther(text);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return undefined;
}

export function CameraDialog(): JSX.Element | null {
  return camera.value === undefined ? null : <Viewfinder />;
}

const close = (): void => camera.close();

function Viewfinder(): JSX.Element {
  const video = useRef<HTMLVideoElement>(null);
  const trouble = useSignal<unknown>(undefined);
  /** A code that is not an id. */
  const other = useSignal<string | undefined>(undefined);
  useEffect(() => {
    const stopping = new AbortController();
    const { signal: stopped } = stopping;
    watch(video.current as HTMLVideoElement, stopped, (text) => (other.value = text)).then(
      (code) => {
        if (code === undefined || stopped.aborted) return;
        close();
        void openCode(code);
      },
      (error: unknown) => (trouble.value = error),
    );
    return () => stopping.abort();
  }, []);
  return (
    <Dialog title={t.tools.scan} onClose={close}>
      <div class="stack">
        {trouble.value === undefined ? (
          <>
            <video class="viewfinder" ref={video} muted playsInline aria-label={t.tools.camera} />
            <p class="faint" role="status">
              {other.value === undefined
                ? t.tools.cameraHint
                : fill(t.tools.codeIsNoId, { code: other.value.slice(0, 60) })}
            </p>
          </>
        ) : (
          <Notice kind="fault" title={t.tools.noPicture} text={explain(trouble.value)} />
        )}
      </div>
    </Dialog>
  );
}
