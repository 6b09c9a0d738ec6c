// Reads a selected file into the text field, where it can be edited before it is sent. Without this script the file itself
// is sent.

const file = document.getElementById("file");
const field = document.getElementById("config");

file?.addEventListener("change", async () => {
  if (!file.files.length) return;
  field.value = await file.files[0].text();
  file.value = "";
  field.focus();
});
