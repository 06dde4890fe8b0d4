/** What the page itself says of its service. Nothing is read before it is asked for. */

/** The service may live under any path of its host; its folder is that of this page. */
export const urlOf = (path = "."): string => new URL(path, document.baseURI).href;

/** The service writes these into its page. */
export const readData = (name: string): string => document.documentElement.dataset[name] ?? "";

/** A script of its own, which most visits do not need. */
export const loadScript = async <Script>(name: string): Promise<Script> =>
  (await import(urlOf(readData(name)))) as Script;
