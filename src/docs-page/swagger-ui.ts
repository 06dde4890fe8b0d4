/** Types for the part of Swagger UI that the plugin uses. Its bundle has none. */

export type Node = object | string | null;
export type Props = Readonly<Record<string, unknown>>;
export type Component = (props: never) => Node;

interface React {
  readonly createElement: (
    type: string | Component,
    props?: Props | null,
    ...children: readonly (Node | readonly Node[])[]
  ) => Node;
  readonly useSyncExternalStore: <Value>(
    subscribe: (onChange: () => void) => () => void,
    getSnapshot: () => Value,
  ) => Value;
}

/** A map of Immutable.js. */
export interface Tree {
  readonly get: (key: string) => unknown;
  readonly has: (key: string) => boolean;
  readonly toJS: () => unknown;
  readonly entrySeq: () => Iterable<readonly [string, Tree]>;
  readonly push: (key: string) => Tree;
}

export type GetComponent = (name: string, isConnected?: boolean) => Component;

type GetSampleSchema = (schema: unknown, mediaType: string, ...rest: unknown[]) => unknown;

export interface System {
  readonly fn: { getSampleSchema: GetSampleSchema };
  readonly React: React;
}

export interface Plugin {
  readonly components?: Readonly<Record<string, Component>>;
  readonly wrapComponents?: Readonly<Record<string, (original: Component) => Component>>;
  readonly afterLoad?: (this: System) => void;
  readonly statePlugins?: object;
}

export interface SwaggerUi {
  readonly preauthorizeApiKey: (scheme: string, token: string) => void;
  readonly authActions: { readonly logout: (schemes: readonly string[]) => void };
}
