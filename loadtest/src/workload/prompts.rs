//! Prompts from the user's own file.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::speech::Prompt;
use crate::input::{InputError, json_problem, lines};

/// One line of the file.
#[derive(Debug)]
pub(crate) struct OwnPrompt {
    pub(crate) prompt: Prompt,
    pub(crate) output_tokens: Option<u32>,
    pub(crate) class: Option<String>,
}

/// The file's prompts, in its order.
#[derive(Debug)]
pub struct Prompts {
    pub(crate) list: Vec<OwnPrompt>,
}

#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
    output_tokens: Option<u32>,
    class: Option<String>,
}

/// More than anybody writes; what is read is kept in memory.
const MOST: usize = 1 << 20;

impl Prompts {
    /// Reads a file: `*.jsonl` has an object a line with `prompt` or `messages` and, where wanted,
    /// `output_tokens` and `class`; any other has a prompt a line.
    ///
    /// # Errors
    ///
    /// [`InputError`]: it cannot be read, or a line is wrong.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let objects = path.extension().is_some_and(|end| end == "jsonl");
        let mut list = Vec::new();
        for line in lines(path)? {
            let (number, line) = line?;
            if list.len() == MOST {
                let problem = format!("more than {MOST} prompts");
                return Err(InputError::line(path, number, problem));
            }
            list.push(if objects {
                parse(&line).map_err(|problem| InputError::line(path, number, problem))?
            } else {
                OwnPrompt {
                    prompt: Prompt::Text(line),
                    output_tokens: None,
                    class: None,
                }
            });
        }
        if list.is_empty() {
            return Err(InputError::file(path, "it holds no prompts"));
        }
        Ok(Self { list })
    }

    /// The classes that it names.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter_map(|own| own.class.as_deref())
    }

    /// Whether it holds conversations, which only chats can take.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        let messages = |own: &OwnPrompt| matches!(own.prompt, Prompt::Messages(_));
        self.list.iter().any(messages)
    }
}

fn parse(line: &str) -> Result<OwnPrompt, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| json_problem(&error))?;
    let prompt = match (line.prompt, line.messages) {
        (Some(text), None) => Prompt::Text(text),
        (None, Some(messages)) => Prompt::Messages(messages),
        _ => return Err("want either prompt, a text, or messages, an array".to_owned()),
    };
    if line.output_tokens == Some(0) {
        return Err("output_tokens: found 0, want 1 at least".to_owned());
    }
    Ok(OwnPrompt {
        prompt,
        output_tokens: line.output_tokens,
        class: line.class,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &str) -> Result<Prompts, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        Prompts::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_of_text_and_objects_are_prompts() {
        let plain = read("p.txt", "one\n\ntwo\n").unwrap();
        assert_eq!(plain.list.len(), 2);
        let objects = "{\"prompt\":\"a\",\"output_tokens\":3,\"class\":\"x\"}\n{\"messages\":[{\"role\":\"user\"}]}";
        let objects = read("p.jsonl", objects).unwrap();
        assert_eq!(objects.list[0].output_tokens, Some(3));
        assert_eq!(objects.classes().collect::<Vec<_>>(), ["x"]);
        assert!(objects.has_messages());
    }

    #[test]
    fn a_broken_line_is_named_by_file_and_number() {
        for wrong in ["{", "{}", "{\"prompt\":1}", "{\"messages\":\"x\"}"] {
            let error = read("p.jsonl", &format!("{{\"prompt\":\"a\"}}\n\n{wrong}\n")).unwrap_err();
            assert!(error.contains("p.jsonl:3: "), "{error}");
        }
        assert!(read("p.txt", "\n").unwrap_err().contains("no prompts"));
    }
}
