//! Packs: the reports that are committed together are one blob, because a file, or an object of S3, costs more than the
//! report in it.
//!
//! A pack is an immutable blob, named by the digest of its content as any other. It begins with [`MAGIC`]; then follow the
//! reports, each after its length. A pack is compressed as a whole: reports of one group resemble each other, and each use of the
//! compressor has a cost of its own. In packs of earlier versions each report is compressed. The place of a report is
//! `<digest>:<number>`. A report alone, or a large one, is a blob of its own, and its place is the digest.
//!
//! A pack is removed when no history has any of its reports. The nodes of a group report at the same time, and then about
//! equally often, so most of its reports leave their histories together.

use std::sync::Arc;

use super::{Blobs, directory};

/// First bytes of a pack. Neither JSON nor a compressed report begins with them.
const MAGIC: [u8; 8] = *b"reports1";
/// Larger reports are blobs of their own. A pack then has at most 4 MiB, and can be verified in memory.
const LARGE: usize = 256 * 1024;

/// Blob with one or more reports.
#[derive(Debug)]
pub(crate) struct ReportPack {
    pub(crate) digest: String,
    /// The content, not compressed.
    pub(crate) bytes: Vec<u8>,
}

/// Place of a report in its blob.
#[derive(Clone, Debug)]
pub(crate) struct ReportPlace {
    pub(crate) pack: Arc<ReportPack>,
    /// `<digest>:<number>`, or the digest of the report alone.
    pub(crate) text: String,
}

/// Chooses the places of reports that are committed together, given with their bodies.
pub(crate) fn place<'r>(bodies: impl IntoIterator<Item = &'r [u8]>) -> Vec<ReportPlace> {
    let bodies: Vec<&[u8]> = bodies.into_iter().collect();
    let is_packed = |body: &&&[u8]| body.len() <= LARGE;
    let packed = || bodies.iter().filter(is_packed);
    if packed().count() < 2 {
        return bodies.into_iter().map(alone).collect();
    }
    let mut bytes = Vec::with_capacity(MAGIC.len() + packed().map(|body| size_of::<u32>() + body.len()).sum::<usize>());
    bytes.extend(MAGIC);
    for body in packed() {
        bytes.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(*body);
    }
    let pack = Arc::new(ReportPack { digest: Blobs::digest(&bytes), bytes });
    let mut number = 0;
    let place = |body| {
        if !is_packed(&&body) {
            return alone(body);
        }
        let text = format!("{}:{number}", pack.digest);
        number += 1;
        ReportPlace { pack: Arc::clone(&pack), text }
    };
    bodies.into_iter().map(place).collect()
}

/// A blob of its own.
fn alone(body: &[u8]) -> ReportPlace {
    let digest = Blobs::digest(body);
    ReportPlace { text: digest.clone(), pack: Arc::new(ReportPack { digest, bytes: body.to_vec() }) }
}

/// Digest of the blob at a place.
pub(crate) fn blob_of(place: &str) -> &str {
    place.split_once(':').map_or(place, |(digest, _)| digest)
}

/// The report at a place, given the content of its blob. None if the place is not in the blob.
pub(super) fn report_at(place: &str, content: &[u8]) -> Option<Vec<u8>> {
    let Some((_, number)) = place.split_once(':') else { return Some(content.to_vec()) };
    let number: usize = number.parse().ok()?;
    let mut rest = content.strip_prefix(&MAGIC)?;
    for at in 0..=number {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (stored, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        if at == number {
            return Some(directory::content(stored).unwrap_or_else(|| stored.to_vec()));
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(bodies: &[Vec<u8>]) -> Vec<ReportPlace> {
        place(bodies.iter().map(Vec::as_slice))
    }

    #[test]
    fn reports_of_a_group_are_one_blob() {
        let long = "{\"log\":\"a line\"}".repeat(500).into_bytes();
        let bodies = [b"{\"a\":1}".to_vec(), long, b"{}".to_vec()];
        let places = placed(&bodies);
        let pack = &places[0].pack;
        for (number, (place, body)) in places.iter().zip(&bodies).enumerate() {
            assert_eq!(place.text, format!("{}:{number}", pack.digest));
            assert_eq!((blob_of(&place.text), &place.pack.digest), (&*pack.digest, &pack.digest));
            assert_eq!(report_at(&place.text, &pack.bytes).as_ref(), Some(body));
        }
        for place in ["3", "x", "", "-1", "4294967296"] {
            assert_eq!(report_at(&format!("{}:{place}", pack.digest), &pack.bytes), None, "{place}");
        }
    }

    #[test]
    fn single_and_large_reports_are_blobs_of_their_own() {
        let alone = placed(&[b"{}".to_vec()]);
        assert_eq!((&alone[0].text, &alone[0].pack.bytes), (&Blobs::digest(b"{}"), &b"{}".to_vec()));
        assert_eq!(report_at(&alone[0].text, b"{}").unwrap(), b"{}");
        let large = vec![b'x'; LARGE + 1];
        let places = placed(&[large.clone(), b"{}".to_vec(), b"[]".to_vec()]);
        assert_eq!(places[0].text, Blobs::digest(&large));
        assert_eq!(places[1].pack.digest, places[2].pack.digest);
        assert_eq!(report_at(&places[2].text, &places[2].pack.bytes).unwrap(), b"[]");
    }

    #[test]
    fn pack_of_an_earlier_version_is_readable() {
        let bodies = ["{\"log\":\"a line\"}".repeat(500).into_bytes(), b"{}".to_vec()];
        let mut bytes = MAGIC.to_vec();
        for body in &bodies {
            let stored = directory::smaller(body).unwrap_or_else(|| body.clone());
            bytes.extend(u32::try_from(stored.len()).unwrap().to_le_bytes());
            bytes.extend(stored);
        }
        assert!(bytes.len() < 1000, "{} bytes: they are compressed", bytes.len());
        for (number, body) in bodies.iter().enumerate() {
            assert_eq!(report_at(&format!("digest:{number}"), &bytes).as_ref(), Some(body));
        }
    }

    #[test]
    fn torn_or_foreign_blob_has_no_report() {
        let places = placed(&[b"{\"a\":1}".to_vec(), b"{}".to_vec()]);
        let (bytes, second) = (&places[0].pack.bytes, &places[1].text);
        for length in 0..bytes.len() {
            assert_eq!(report_at(second, &bytes[..length]), None, "{length}");
        }
        assert_eq!(report_at(second, b"{\"a\":1}"), None);
        let mut endless = bytes.clone();
        endless[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(report_at(second, &endless), None);
    }
}
