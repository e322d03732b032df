//! GGUF files and directories made for a test.

use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::gguf_file::{Value, write};
use tandem_text::{TextError, TextModel};
use tempfile::TempDir;

pub(crate) const BEGIN: u32 = 0;
pub(crate) const END: u32 = 1;
/// User-defined, therefore text.
pub(crate) const TOOL: u32 = 2;
/// Byte `b` is token `BYTES + b`.
pub(crate) const BYTES: u32 = 3;

/// A GGUF file's metadata, to be changed and written.
pub(crate) struct Made(Vec<(String, Value)>);

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn texts(texts: impl IntoIterator<Item = String>) -> Value {
    Value::Array(texts.into_iter().map(Value::String).collect())
}

/// GPT-2's character for a byte.
fn character(byte: u8) -> char {
    let prints = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if prints(&byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|byte| !prints(byte)).count();
    char::from_u32(0x100 + u32::try_from(place).unwrap()).unwrap()
}

impl Made {
    /// All bytes, three special tokens and a few merges: ` a`, ` ab`, `12` and an emoji cut in two.
    pub(crate) fn new() -> Self {
        let mut tokens = vec!["<s>".to_owned(), "</s>".to_owned(), "<tool>".to_owned()];
        tokens.extend((0..=u8::MAX).map(|byte| character(byte).to_string()));
        let mut merges = Vec::new();
        for (left, right) in [(" ", "a"), (" a", "b"), ("1", "2"), ("\u{1F600}", "")] {
            let spell = |text: &[u8]| text.iter().copied().map(character).collect::<String>();
            let (left, right) = match right {
                "" => left.as_bytes().split_at(1),
                _ => (left.as_bytes(), right.as_bytes()),
            };
            let right = &right[..right.len().min(1)];
            let (left, right) = (spell(left), spell(right));
            tokens.push(format!("{left}{right}"));
            merges.push(format!("{left} {right}"));
        }
        let mut types = vec![Value::I32(1); tokens.len()];
        types[BEGIN as usize] = Value::I32(3);
        types[END as usize] = Value::I32(3);
        types[TOOL as usize] = Value::I32(4);
        let prefix = "tokenizer.ggml";
        Self(vec![
            ("general.architecture".to_owned(), text("llama")),
            ("general.name".to_owned(), text("Made")),
            ("llama.context_length".to_owned(), Value::U32(512)),
            (format!("{prefix}.model"), text("gpt2")),
            (format!("{prefix}.pre"), text("gpt-2")),
            (format!("{prefix}.tokens"), texts(tokens)),
            (format!("{prefix}.token_type"), Value::Array(types)),
            (format!("{prefix}.merges"), texts(merges)),
            (format!("{prefix}.bos_token_id"), Value::U32(BEGIN)),
            (format!("{prefix}.eos_token_id"), Value::U32(END)),
        ])
    }

    pub(crate) fn set(mut self, key: &str, value: Value) -> Self {
        self = self.without(key);
        self.0.push((key.to_owned(), value));
        self
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.set(key, text(value))
    }

    pub(crate) fn without(mut self, key: &str) -> Self {
        self.0.retain(|(name, _)| name != key);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let metadata: Vec<(&str, &Value)> = self
            .0
            .iter()
            .map(|(key, value)| (key.as_str(), value))
            .collect();
        let mut file = std::io::Cursor::new(Vec::new());
        write(&mut file, &metadata, &[]).unwrap();
        file.into_inner()
    }

    pub(crate) fn load(&self) -> Result<TextModel, TextError> {
        load_bytes(&self.bytes())
    }
}

pub(crate) fn load_bytes(bytes: &[u8]) -> Result<TextModel, TextError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("made.gguf");
    std::fs::write(&path, bytes).unwrap();
    TextModel::load(&path)
}

pub(crate) fn model() -> Arc<TextModel> {
    Arc::new(Made::new().load().unwrap())
}

/// A model with this chat template.
pub(crate) fn with_template(source: &str) -> Result<TextModel, TextError> {
    Made::new().text("tokenizer.chat_template", source).load()
}

/// A directory as Hugging Face lays it out.
pub(crate) fn directory(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        std::fs::write(Path::join(folder.path(), name), text).unwrap();
    }
    folder
}
