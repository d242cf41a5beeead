//! Searches bytes for a secret in every form in which a program may have written it.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// Begin of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Frames within frames that are unpacked.
const DEPTH: usize = 4;

/// A secret, and its other forms.
#[derive(Debug)]
pub struct SecretSearch {
    forms: Vec<(&'static str, Vec<u8>)>,
}

impl SecretSearch {
    /// The value, as JSON, as JSON in JSON, and each of them in base64 at any place of a longer text.
    pub fn new(value: &str) -> Self {
        let json = |text: &str| {
            let text = serde_json::to_string(text).unwrap();
            text[1..text.len() - 1].to_owned()
        };
        let texts = [("plain", value.to_owned()), ("JSON", json(value)), ("JSON in JSON", json(&json(value)))];
        let mut forms = Vec::new();
        for (name, text) in texts {
            forms.extend((0..3).flat_map(|before| base64_forms(text.as_bytes(), before)).map(|form| (name, form)));
            forms.push((name, text.into_bytes()));
        }
        forms.dedup();
        Self { forms }
    }

    /// The form that is in the bytes, or in a zstd frame in them. None if there is none.
    pub fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        self.find_within(bytes, DEPTH)
    }

    fn find_within(&self, bytes: &[u8], depth: usize) -> Option<&'static str> {
        let contains = |form: &[u8]| bytes.windows(form.len()).any(|window| window == form);
        if let Some((name, _)) = self.forms.iter().find(|(_, form)| contains(form)) {
            return Some(name);
        }
        let depth = depth.checked_sub(1)?;
        frames(bytes).iter().find_map(|frame| self.find_within(frame, depth))
    }

    /// Fails if the bytes contain the secret.
    pub fn assert_absent(&self, what: &str, bytes: &[u8]) {
        let found = self.find(bytes);
        assert!(found.is_none(), "{what} contains the secret ({})", found.unwrap_or_default());
    }
}

/// The characters of base64 that a text alone determines, if some bytes are before it.
fn base64_forms(text: &[u8], before: usize) -> [Vec<u8>; 2] {
    let padded = [vec![0; before], text.to_vec()].concat();
    let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
    [STANDARD, URL_SAFE].map(|engine| engine.encode(&padded).into_bytes()[first..last].to_vec())
}

/// The content of all zstd frames in the bytes.
pub fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let begins = bytes.windows(ZSTD.len()).enumerate().filter(|(_, window)| *window == ZSTD).map(|(at, _)| at);
    let unpack = |at: usize| {
        let mut content = Vec::new();
        // What a damaged frame has before its damage counts too.
        let _ = zstd::stream::read::Decoder::new(&bytes[at..]).ok()?.single_frame().read_to_end(&mut content);
        (!content.is_empty()).then_some(content)
    };
    begins.filter_map(unpack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Tr0ub\"4dor&3-quite-long?";

    #[test]
    fn every_form_is_found_at_every_place() {
        let search = SecretSearch::new(SECRET);
        let json = serde_json::to_string(SECRET).unwrap();
        let nested = serde_json::to_string(&json).unwrap();
        for text in [SECRET, &json, &nested] {
            for before in 0..7 {
                let plain = [&vec![b'x'; before], text.as_bytes(), b"tail"].concat();
                let coded = [STANDARD, URL_SAFE].map(|engine| engine.encode(&plain).into_bytes());
                for bytes in [&plain, &coded[0], &coded[1]] {
                    assert!(search.find(bytes).is_some(), "{text} after {before} bytes");
                    let packed = zstd::encode_all(&bytes[..], 3).unwrap();
                    let within =
                        [b"head".to_vec(), zstd::encode_all(&packed[..], 3).unwrap(), b"tail".to_vec()].concat();
                    assert!(search.find(&packed).is_some() && search.find(&within).is_some(), "{text}, packed");
                }
            }
        }
        assert_eq!(search.find(b"Tr0ub\"4dor&3-quite-shor"), None);
    }

    #[test]
    fn begin_of_a_frame_alone_is_no_frame() {
        assert_eq!(frames(&[b"text".to_vec(), ZSTD.to_vec()].concat()), Vec::<Vec<u8>>::new());
    }
}
