//! When the certificates in a file end. Of a certificate nothing else is read.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

const DAY: i64 = 24 * 60 * 60;

/// The second, since 1970, after which the first of the certificates in a file is not valid any more. Nothing, if there is
/// none.
pub(crate) fn end(content: &[u8]) -> Option<i64> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    content.windows(BEGIN.len()).find(|part| *part == BEGIN)?;
    let all = CertificateDer::pem_slice_iter(content).filter_map(Result::ok);
    all.filter_map(|certificate| not_after(&certificate)).min()
}

/// Whole days until then; below nothing, if it is over.
pub(crate) fn days_left(end: i64, now: i64) -> i64 {
    (end - now).div_euclid(DAY)
}

/// `notAfter` of an X.509 certificate (RFC 5280, 4.1).
fn not_after(certificate: &[u8]) -> Option<i64> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let (tag, _, rest) = element(signed)?;
    let signed = if tag == VERSION { rest } else { signed };
    // Serial number, algorithm and issuer.
    let after_issuer = (0..3).try_fold(signed, |rest, _| Some(element(rest)?.2))?;
    let (SEQUENCE, validity, _) = element(after_issuer)? else { return None };
    let (_, _, validity) = element(validity)?;
    let (tag, time, _) = element(validity)?;
    let time = str::from_utf8(time).ok()?.strip_suffix('Z')?;
    match tag {
        // Of two digits, those from 50 on are of the last century.
        UTC_TIME if time.get(..2)? < "50" => seconds(&format!("20{time}")),
        UTC_TIME => seconds(&format!("19{time}")),
        GENERALIZED_TIME => seconds(time),
        _ => None,
    }
}

/// The tag and the content of the first element in DER, and what comes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(first).checked_sub(0x80) {
        None => (usize::from(first), rest),
        Some(count @ 1..=4) => {
            let (digits, rest) = rest.split_at_checked(count)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        Some(_) => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Of `YYYYMMDDhhmmss`.
fn seconds(time: &str) -> Option<i64> {
    const DAYS_TO_1970: i64 = 719_468;
    let is_plain = time.len() == 14 && time.bytes().all(|digit| digit.is_ascii_digit());
    let number = |from: usize, to: usize| time.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    // The year begins in March, so that its last day is the one that may be missing.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    is_plain.then_some((days - DAYS_TO_1970) * DAY + (hour * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> String {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = date_time_ymd(1990, 1, 1);
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        for (year, month, day, expected) in [
            (1999, 12, 31, 946_598_400),
            (2024, 2, 29, 1_709_164_800),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000),
            (4096, 3, 1, 67_095_302_400),
        ] {
            assert_eq!(end(certificate(year, month, day).as_bytes()), Some(expected), "{year}");
        }
    }

    #[test]
    fn the_first_of_a_chain_to_end_counts_and_what_is_no_certificate_does_not() {
        let chain = [certificate(2040, 1, 1), certificate(2030, 1, 1), certificate(2035, 1, 1)];
        let key = KeyPair::generate().unwrap().serialize_pem();
        let file = format!("# site\n{}{key}", chain.concat());
        assert_eq!(end(file.as_bytes()), end(certificate(2030, 1, 1).as_bytes()));
        assert_eq!(end(key.as_bytes()), None);
        assert_eq!(end(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), None);
        assert_eq!(end(b""), None);
    }

    /// Whatever a file holds, it is read without harm.
    #[test]
    fn a_damaged_certificate_has_no_end_or_another_one() {
        let pem = certificate(2030, 1, 1);
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        for at in 0..der.len() {
            assert_eq!(not_after(&der[..at]), None, "cut off at {at}");
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = der.to_vec();
                damaged[at] = value;
                let _ = not_after(&damaged);
            }
        }
    }

    #[test]
    fn days_are_whole_ones() {
        for (seconds, expected) in [(DAY - 1, 0), (DAY, 1), (-1, -1), (-DAY - 1, -2)] {
            assert_eq!(days_left(1_000_000 + seconds, 1_000_000), expected);
        }
    }
}
