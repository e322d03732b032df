//! What a model is called by those who ask for it.

use std::path::Path;

/// The name that clients ask for where none is configured: the file's, without its ending and its
/// quantisation (`SmolLM2-135M-Instruct.Q4_1.gguf` is `SmolLM2-135M-Instruct`). The name inside a
/// GGUF file is often that of a training run.
#[must_use]
pub fn served_name(model: &Path) -> String {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".gguf").unwrap_or(&name);
    let quantised = |tail: &str| {
        let tail = tail.to_ascii_uppercase();
        let float = matches!(tail.as_str(), "F16" | "BF16" | "F32");
        float
            || tail
                .strip_prefix(['Q', 'I'])
                .is_some_and(|t| t.contains('_'))
    };
    match stem.rsplit_once(['.', '-']) {
        Some((head, tail)) if quantised(tail) && !head.is_empty() => head.to_owned(),
        _ => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_after_its_file_without_the_quantisation() {
        for (file, name) in [
            ("m/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
            ("Llama-3.2-1B-Instruct-Q8_0.gguf", "Llama-3.2-1B-Instruct"),
            ("qwen-bf16.gguf", "qwen"),
            ("models/SmolLM2-135M", "SmolLM2-135M"),
            ("Q4_1.gguf", "Q4_1"),
        ] {
            assert_eq!(served_name(Path::new(file)), name);
        }
    }
}
