export const plants = {
  idTakenBy: "Gehört bereits zu {plant}.",
  notAdded: "{name} ist noch nicht hinzugefügt.",
};
