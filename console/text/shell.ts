/** The frame around every view: navigation, account menu, shortcuts. */

import type { Table } from "./table.ts";

export const shell = {
  views: {
    overview: { en: "Overview", de: "Überblick", fr: "Synthèse", es: "Resumen" },
    plants: { en: "Plants", de: "Pflanzen", fr: "Plantes", es: "Plantas" },
    import: { en: "Import", de: "Import", fr: "Import", es: "Importar" },
    changes: { en: "Changes", de: "Änderungen", fr: "Modifications", es: "Cambios" },
    health: { en: "Health", de: "Zustand", fr: "État", es: "Estado" },
    tokens: { en: "Tokens", de: "Token", fr: "Jetons", es: "Tokens" },
    webhooks: { en: "Webhooks", de: "Webhooks", fr: "Webhooks", es: "Webhooks" },
  },
  /** The tab of the plants for a token that may only write. */
  add: { en: "Add", de: "Hinzufügen", fr: "Ajouter", es: "Añadir" },
  signIn: { en: "Sign in", de: "Anmelden", fr: "Connexion", es: "Iniciar sesión" },
  skipToContent: {
    en: "Skip to content",
    de: "Zum Inhalt",
    fr: "Aller au contenu",
    es: "Ir al contenido",
  },
  navigation: { en: "Views", de: "Ansichten", fr: "Vues", es: "Vistas" },
  messages: { en: "Messages", de: "Meldungen", fr: "Messages", es: "Mensajes" },
  dismiss: { en: "Dismiss", de: "Ausblenden", fr: "Masquer", es: "Descartar" },
  noConnection: {
    en: "No connection to the store. Trying again…",
    de: "Keine Verbindung zum Bestand. Neuer Versuch …",
    fr: "Pas de connexion au service. Nouvel essai…",
    es: "Sin conexión con el servicio. Reintentando…",
  },
  waiting: {
    en: {
      one: "{count} edit not saved. It is sent when the connection is back.",
      other: "{count} edits not saved. They are sent when the connection is back.",
    },
    de: {
      one: "{count} Bearbeitung nicht gespeichert. Sie wird gesendet, sobald die Verbindung wieder steht.",
      other:
        "{count} Bearbeitungen nicht gespeichert. Sie werden gesendet, sobald die Verbindung wieder steht.",
    },
    fr: {
      one: "{count} saisie non enregistrée. Elle sera envoyée dès le retour de la connexion.",
      other:
        "{count} saisies non enregistrées. Elles seront envoyées dès le retour de la connexion.",
    },
    es: {
      one: "{count} edición sin guardar. Se enviará cuando vuelva la conexión.",
      other: "{count} ediciones sin guardar. Se enviarán cuando vuelva la conexión.",
    },
  },
  notAllowed: {
    en: "Not allowed with this token",
    de: "Mit diesem Token nicht erlaubt",
    fr: "Non autorisé avec ce jeton",
    es: "No permitido con este token",
  },
  notAllowedHint: {
    en: "Sign in with another token, or continue with what yours allows.",
    de: "Mit einem anderen Token anmelden oder mit dem fortfahren, was dieses erlaubt.",
    fr: "Se connecter avec un autre jeton, ou continuer avec ce que celui-ci permet.",
    es: "Iniciar sesión con otro token, o seguir con lo que permite el actual.",
  },
  goTo: {
    en: "Go to {view}",
    de: "Weiter zu „{view}“",
    fr: "Aller à « {view} »",
    es: "Ir a «{view}»",
  },
  signedInAs: {
    en: "Signed in as {name}",
    de: "Angemeldet als {name}",
    fr: "Connecté en tant que {name}",
    es: "Sesión iniciada como {name}",
  },
  token: { en: "Token:", de: "Token:", fr: "Jeton :", es: "Token:" },
  access: { en: "Access:", de: "Zugriff:", fr: "Accès :", es: "Acceso:" },
  expires: { en: "Expires:", de: "Läuft ab:", fr: "Expire :", es: "Caduca:" },
  never: { en: "never", de: "nie", fr: "jamais", es: "nunca" },
  language: { en: "Language", de: "Sprache", fr: "Langue", es: "Idioma" },
  unsaved: {
    en: "Unsaved edits",
    de: "Ungespeicherte Änderungen",
    fr: "Saisies non enregistrées",
    es: "Ediciones sin guardar",
  },
  unsavedEdits: {
    en: { one: "{count} edit is not saved.", other: "{count} edits are not saved." },
    de: {
      one: "{count} Bearbeitung ist nicht gespeichert.",
      other: "{count} Bearbeitungen sind nicht gespeichert.",
    },
    fr: {
      one: "{count} saisie n’est pas enregistrée.",
      other: "{count} saisies ne sont pas enregistrées.",
    },
    es: {
      one: "{count} edición no está guardada.",
      other: "{count} ediciones no están guardadas.",
    },
  },
  saveAll: { en: "Save all", de: "Alle speichern", fr: "Tout enregistrer", es: "Guardar todo" },
  discard: { en: "Discard", de: "Verwerfen", fr: "Rejeter", es: "Descartar" },
  discardAll: {
    en: "Discard all",
    de: "Alle verwerfen",
    fr: "Tout rejeter",
    es: "Descartar todo",
  },
  theme: { en: "Appearance", de: "Darstellung", fr: "Apparence", es: "Apariencia" },
  systemTheme: { en: "System", de: "System", fr: "Système", es: "Sistema" },
  themes: {
    light: { en: "Light", de: "Hell", fr: "Clair", es: "Claro" },
    dark: { en: "Dark", de: "Dunkel", fr: "Sombre", es: "Oscuro" },
  },
  health: {
    en: "Health of the store",
    de: "Zustand des Bestands",
    fr: "État du service",
    es: "Estado del servicio",
  },
  reference: {
    en: "API reference",
    de: "API-Referenz",
    fr: "Référence de l’API",
    es: "Referencia de la API",
  },
  signOut: { en: "Sign out", de: "Abmelden", fr: "Se déconnecter", es: "Cerrar sesión" },
  askSignOut: { en: "Sign out?", de: "Abmelden?", fr: "Se déconnecter ?", es: "¿Cerrar sesión?" },
  signOutAnyway: {
    en: "Sign out without saving",
    de: "Ohne Speichern abmelden",
    fr: "Se déconnecter sans enregistrer",
    es: "Cerrar sesión sin guardar",
  },
  stopsImport: {
    en: "The import of {file} stops. What it has stored stays.",
    de: "Der Import von {file} hält an. Was er gespeichert hat, bleibt.",
    fr: "L’import de {file} s’arrête. Ce qu’il a enregistré reste.",
    es: "La importación de {file} se detiene. Lo que ha guardado queda.",
  },
  losesEdits: {
    en: {
      one: "{count} edit is not saved. It will be lost.",
      other: "{count} edits are not saved. They will be lost.",
    },
    de: {
      one: "{count} Bearbeitung ist nicht gespeichert. Sie geht verloren.",
      other: "{count} Bearbeitungen sind nicht gespeichert. Sie gehen verloren.",
    },
    fr: {
      one: "{count} saisie n’est pas enregistrée. Elle sera perdue.",
      other: "{count} saisies ne sont pas enregistrées. Elles seront perdues.",
    },
    es: {
      one: "{count} edición está sin guardar. Se perderá.",
      other: "{count} ediciones están sin guardar. Se perderán.",
    },
  },
  shortcuts: {
    en: "Keyboard shortcuts",
    de: "Tastenkürzel",
    fr: "Raccourcis clavier",
    es: "Atajos de teclado",
  },
  useShortcuts: {
    en: "Use single-key shortcuts",
    de: "Kürzel mit einer Taste verwenden",
    fr: "Utiliser les raccourcis à une touche",
    es: "Usar atajos de una sola tecla",
  },
  /** What each key does. */
  keys: {
    views: {
      en: "Open the overview, import, changes, health, tokens or webhooks",
      de: "Überblick, Import, Änderungen, Zustand, Token oder Webhooks öffnen",
      fr: "Ouvrir la synthèse, l’import, les modifications, l’état, les jetons ou les webhooks",
      es: "Abrir el resumen, la importación, los cambios, el estado, los tokens o los webhooks",
    },
    menu: {
      en: "Open the account menu",
      de: "Das Kontomenü öffnen",
      fr: "Ouvrir le menu du compte",
      es: "Abrir el menú de la cuenta",
    },
    search: { en: "Search", de: "Suchen", fr: "Rechercher", es: "Buscar" },
    digits: {
      en: "Search for an id, typed or scanned; Enter opens it",
      de: "Eine getippte oder gescannte Id suchen; die Eingabetaste öffnet sie",
      fr: "Rechercher un id, saisi ou scanné ; Entrée l’ouvre",
      es: "Buscar un id, tecleado o escaneado; Intro lo abre",
    },
    arrows: {
      en: "Move in the list",
      de: "In der Liste bewegen",
      fr: "Se déplacer dans la liste",
      es: "Moverse por la lista",
    },
    page: {
      en: "Move one screen",
      de: "Einen Bildschirm weiter",
      fr: "Avancer d’un écran",
      es: "Avanzar una pantalla",
    },
    ends: {
      en: "First or last loaded plant",
      de: "Erste oder letzte geladene Pflanze",
      fr: "Première ou dernière plante chargée",
      es: "Primera o última planta cargada",
    },
    enter: {
      en: "Open the plant",
      de: "Pflanze öffnen",
      fr: "Ouvrir la plante",
      es: "Abrir la planta",
    },
    space: {
      en: "Select the plant; with Shift, all plants up to it",
      de: "Pflanze auswählen, mit Umschalt alle bis dorthin",
      fr: "Sélectionner la plante ; avec Maj, toutes jusqu’à elle",
      es: "Seleccionar la planta; con Mayús, todas hasta ella",
    },
    all: {
      en: "Select all plants of the list",
      de: "Alle Pflanzen der Liste auswählen",
      fr: "Sélectionner toutes les plantes de la liste",
      es: "Seleccionar todas las plantas de la lista",
    },
    add: {
      en: "Add a plant",
      de: "Pflanze hinzufügen",
      fr: "Ajouter une plante",
      es: "Añadir una planta",
    },
    edit: {
      en: "Edit the open plant",
      de: "Offene Pflanze bearbeiten",
      fr: "Modifier la plante ouverte",
      es: "Editar la planta abierta",
    },
    delete: {
      en: "Delete the selected plants, or the open one",
      de: "Ausgewählte Pflanzen oder die offene löschen",
      fr: "Supprimer les plantes sélectionnées, ou celle qui est ouverte",
      es: "Eliminar las plantas seleccionadas o la abierta",
    },
    undo: {
      en: "Undo",
      de: "Rückgängig machen",
      fr: "Annuler la dernière action",
      es: "Deshacer",
    },
    escape: {
      en: "Close, or go back one step",
      de: "Schließen oder einen Schritt zurück",
      fr: "Fermer, ou revenir en arrière",
      es: "Cerrar, o retroceder un paso",
    },
    help: {
      en: "Show this help",
      de: "Diese Hilfe zeigen",
      fr: "Afficher cette aide",
      es: "Mostrar esta ayuda",
    },
  },

  // Signing in at the issuer of JWTs.
  openByHttps: {
    en: "Open this page over HTTPS to sign in with {host}.",
    de: "Diese Seite über https öffnen, um sich mit {host} anzumelden.",
    fr: "Ouvrir cette page en https pour se connecter avec {host}.",
    es: "Abrir esta página por https para iniciar sesión con {host}.",
  },
  otherAttempt: {
    en: "This answer belongs to another attempt to sign in. Try again.",
    de: "Diese Antwort gehört zu einem anderen Anmeldeversuch. Erneut versuchen.",
    fr: "Cette réponse correspond à une autre tentative de connexion. Réessayer.",
    es: "Esta respuesta pertenece a otro intento de iniciar sesión. Reintentar.",
  },
  issuerDenied: {
    en: "You were not signed in by {host}.",
    de: "{host} hat die Anmeldung nicht gestattet.",
    fr: "{host} n’a pas autorisé la connexion.",
    es: "{host} no ha autorizado el inicio de sesión.",
  },
  issuerRefused: {
    en: "{host} refused the sign-in ({reason}).",
    de: "{host} hat die Anmeldung abgewiesen ({reason}).",
    fr: "{host} a refusé la connexion ({reason}).",
    es: "{host} ha rechazado el inicio de sesión ({reason}).",
  },
  issuerUndescribed: {
    en: "{host} does not describe how to sign in.",
    de: "{host} beschreibt nicht, wie man sich anmeldet.",
    fr: "{host} ne décrit pas comment se connecter.",
    es: "{host} no describe cómo iniciar sesión.",
  },
  issuerFailed: {
    en: "{host} did not answer as expected. Try again later.",
    de: "{host} hat nicht wie erwartet geantwortet. Später erneut versuchen.",
    fr: "{host} n’a pas répondu comme prévu. Réessayer plus tard.",
    es: "{host} no ha respondido como se esperaba. Reintentar más tarde.",
  },
} as const satisfies Table;
