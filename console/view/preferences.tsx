/** What a person chooses for this device: the language, and light or dark. */

import type { JSX } from "preact";
import { setTheme, theme, themes } from "../state/storage.ts";
import type { Language } from "../text/table.ts";
import { language, languages, setLanguage, t } from "../text/text.ts";

export const LanguageChoice = (): JSX.Element => (
  <label class="preference">
    {t.shell.language}
    <select
      value={language}
      onChange={({ currentTarget: { value } }) => setLanguage(value as Language)}
    >
      {Object.entries(languages).map(([tag, name]) => (
        <option key={tag} value={tag} lang={tag}>
          {name}
        </option>
      ))}
    </select>
  </label>
);

export const ThemeChoice = (): JSX.Element => (
  <label class="preference">
    {t.shell.theme}
    <select
      value={theme.value ?? ""}
      onChange={({ currentTarget: { value } }) => setTheme(themes.find((each) => each === value))}
    >
      <option value="">{t.shell.systemTheme}</option>
      {themes.map((each) => (
        <option key={each} value={each}>
          {t.shell.themes[each]}
        </option>
      ))}
    </select>
  </label>
);
