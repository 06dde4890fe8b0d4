/** The choice of the language, in the account menu and before signing in. */

import type { JSX } from "preact";
import type { Language } from "../text/table.ts";
import { language, languages, setLanguage, t } from "../text/text.ts";

export const LanguageChoice = (): JSX.Element => (
  <label class="language">
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
