//! The inputs of one command, and how they are stored.

use crate::waves::plain;
use serde_json::{Value, json};

/// What one command is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// Which it is, from 1.
    pub(super) number: u64,
    pub(super) inputs: Vec<Vec<u8>>,
}

impl Given {
    pub(super) fn len(&self) -> usize {
        self.inputs.iter().map(Vec::len).sum()
    }

    /// As it is stored: the number, then each input as text, or in hexadecimal if it is none.
    pub(super) fn to_json(&self) -> Value {
        let inputs = self.inputs.iter().map(|input| bytes_to_json(input));
        Value::Array([json!(self.number)].into_iter().chain(inputs).collect())
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let (number, inputs) = value.as_array()?.split_first()?;
        let inputs = inputs.iter().map(bytes_from_json).collect::<Option<Vec<_>>>()?;
        Some(Given { number: number.as_u64()?, inputs })
    }

    /// For people.
    pub(super) fn label(&self) -> String {
        let inputs = self.inputs.iter().map(|input| plain(&String::from_utf8_lossy(input)));
        plain(&inputs.collect::<Vec<_>>().join(" "))
    }
}

/// Text as it is, anything else in hexadecimal.
pub(super) fn bytes_to_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => {
            json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
        }
    }
}

fn bytes_from_json(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let hex = value["hex"].as_str()?.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |two: &[u8]| u8::try_from(digit(two[0])? * 16 + digit(*two.get(1)?)?).ok();
    hex.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_of_an_input_is_what_it_was() {
        let inputs =
            vec![b"a b".to_vec(), b"\xff\0x".to_vec(), Vec::new(), b"{\"hex\":1}".to_vec()];
        let given = Given { number: 7, inputs };
        assert_eq!(given.to_json().to_string(), r#"[7,"a b",{"hex":"ff0078"},"","{\"hex\":1}"]"#);
        assert_eq!(Given::from_json(&given.to_json()), Some(given));
        assert_eq!(Given::from_json(&json!([1, { "hex": "abc" }])), None);
        assert_eq!(Given::from_json(&json!("x")), None);
    }
}
