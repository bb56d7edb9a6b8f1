//! Strict base64: one text for one content, so that no bit of a signature's text can be changed unnoticed.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Refuses spaces, missing padding and set bits behind the end.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let unpadded = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(unpadded.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in unpadded {
        let value = ALPHABET.iter().position(|known| known == letter)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    (text.len().is_multiple_of(4) && count < 6 && bits == 0).then_some(bytes)
}

/// Without padding, as fingerprints are written.
pub(crate) fn encode_unpadded(bytes: &[u8]) -> String {
    let group = |three: &[u8]| {
        let bits = (0..3).fold(0_usize, |bits, at| {
            bits << 8 | usize::from(three.get(at).copied().unwrap_or_default())
        });
        let letters = [18, 12, 6, 0].map(|shift| ALPHABET.get(bits >> shift & 63).copied());
        letters.into_iter().flatten().take(three.len() + 1).map(char::from).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_standard_are_read() {
        let rows = [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")];
        for (text, expected) in rows {
            assert_eq!(decode(text.as_bytes()).unwrap(), expected.as_bytes(), "{text}");
            assert_eq!(encode_unpadded(expected.as_bytes()), text.trim_end_matches('='));
        }
        for text in
            ["Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zm 9v", "Zg==Zg==", "====", "=", "Z===", "Zm9v\n"]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
