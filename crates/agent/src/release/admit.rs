//! Whether a release may run on this node: pure. Nothing is fetched, and nothing executed, before this has said yes.

use jiff::Timestamp;

use muster_core::release::manifest::{Manifest, PublicKey};
use muster_core::report::reason::ReleaseRefusal;
use muster_release::manifest::{VerifyError, authenticate};
use muster_release::trust::SignatureError;
use muster_wire::sync::DesiredState;

/// What the node goes by.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub trusted: &'a [PublicKey],
    /// The highest serial that the node has proved to run; see [`super::memory`].
    pub highest: Option<u64>,
    /// The digests of bundles that the node has come to before.
    pub been_at: &'a [Option<&'a str>],
    /// By the node's own clock. The server's word on the time would be no proof against the server.
    pub now: Timestamp,
}

/// Judges what the server says that the node should run. The manifest that it gives is one that a trusted key stands for.
///
/// An end of time counts when the node comes to a release, and not for one that it has come to before: a fleet does not
/// stop working on the day on which its release may not be handed out any more.
pub fn admit(desired: &DesiredState, known: Known<'_>) -> Result<Manifest, ReleaseRefusal> {
    let manifest = match authenticate(&desired.manifest, known.trusted) {
        Ok(authentic) => authentic.manifest,
        Err(VerifyError::Signature(error)) => return Err(not_proved(error)),
        Err(VerifyError::Expired { at }) => return Err(ReleaseRefusal::Expired { at }),
        Err(VerifyError::Malformed(error)) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            return Err(ReleaseRefusal::Unsafe { problem: format!("its manifest is not understood: {error}{source}") });
        }
    };
    judge(desired, &manifest, known).map(|()| manifest)
}

/// The same for a manifest that is known to be authentic: whether it is what the server speaks of, not older than what the
/// node has proved unless it may be, and not expired.
pub fn judge(desired: &DesiredState, manifest: &Manifest, known: Known<'_>) -> Result<(), ReleaseRefusal> {
    if let Some(what) = difference(desired, manifest) {
        return Err(ReleaseRefusal::Another { what });
    }
    match known.highest {
        Some(highest) if manifest.serial < highest && !desired.allow_older => {
            return Err(ReleaseRefusal::Older { serial: manifest.serial, highest });
        }
        Some(_) | None => {}
    }
    match manifest.expires {
        Some(at) if at <= known.now && !known.been_at.contains(&Some(manifest.digest.as_str())) => {
            Err(ReleaseRefusal::Expired { at })
        }
        Some(_) | None => Ok(()),
    }
}

fn not_proved(error: SignatureError) -> ReleaseRefusal {
    match error {
        SignatureError::Unsigned => ReleaseRefusal::UnknownKey { signed_by: Vec::new() },
        SignatureError::UnknownKey { ids } => {
            ReleaseRefusal::UnknownKey { signed_by: ids.iter().map(ToString::to_string).collect() }
        }
        SignatureError::BadSignature { key } => ReleaseRefusal::BadSignature { key: key.to_string() },
    }
}

/// A signed manifest proves what it says, and not that it is what was asked for.
fn difference(desired: &DesiredState, manifest: &Manifest) -> Option<String> {
    if manifest.version != desired.version {
        return Some(format!("of version {}, and the node should run {}", manifest.version, desired.version));
    }
    if manifest.digest.as_str() != desired.digest {
        return Some(format!("its bundle is {}, and the server says {}", manifest.digest, desired.digest));
    }
    (manifest.serial != desired.serial)
        .then(|| format!("its serial is {}, and the server says {}", manifest.serial, desired.serial))
}

#[cfg(test)]
mod tests {
    use super::*;

    use muster_core::names::Version;
    use muster_core::release::manifest::{Digest, FORMAT, SignedManifest};
    use muster_core::txn::Generation;
    use muster_release::key::SigningKey;
    use muster_release::manifest::sign;

    const NOON: &str = "2026-11-15T12:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn digest(fill: &str) -> Digest {
        Digest::new(format!("sha256:{}", fill.repeat(64))).unwrap()
    }

    fn manifest(expires: Option<&str>) -> Manifest {
        Manifest {
            format: FORMAT,
            version: Version::new("v2").unwrap(),
            serial: 7,
            digest: digest("a"),
            size: 10,
            content: digest("b"),
            created: at("2026-11-01T00:00:00Z"),
            expires: expires.map(at),
            previous: None,
        }
    }

    fn desired(signed: SignedManifest) -> DesiredState {
        DesiredState {
            generation: Generation { epoch: 1, number: 1 },
            version: Version::new("v2").unwrap(),
            digest: digest("a").to_string(),
            serial: 7,
            allow_older: false,
            confirm_within: None,
            manifest: signed,
        }
    }

    struct Case {
        key: SigningKey,
        desired: DesiredState,
    }

    impl Case {
        fn new(expires: Option<&str>) -> Self {
            let key = SigningKey::generate("").unwrap();
            let signed = sign(&manifest(expires), std::slice::from_ref(&key)).unwrap();
            Self { key, desired: desired(signed) }
        }

        fn judged(&self, highest: Option<u64>, current: Option<&str>, now: &str) -> Result<Manifest, ReleaseRefusal> {
            let trusted = [SigningKey::generate("").unwrap().public().clone(), self.key.public().clone()];
            admit(&self.desired, Known { trusted: &trusted, highest, been_at: &[None, current], now: at(now) })
        }
    }

    #[test]
    fn one_of_the_trusted_keys_is_enough() {
        let case = Case::new(None);
        assert_eq!(case.judged(None, None, NOON), Ok(manifest(None)));
        assert_eq!(case.judged(Some(7), None, NOON), Ok(manifest(None)), "the same serial is not an older one");
    }

    #[test]
    fn who_signed_must_be_trusted() {
        let case = Case::new(None);
        let id = case.key.public().id().to_string();
        let other = SigningKey::generate("").unwrap();
        let known = Known { trusted: &[other.public().clone()], highest: None, been_at: &[], now: at(NOON) };
        assert_eq!(admit(&case.desired, known), Err(ReleaseRefusal::UnknownKey { signed_by: vec![id] }));
        assert!(admit(&case.desired, Known { trusted: &[], ..known }).is_err());
        let unsigned = desired(sign(&manifest(None), &[]).unwrap());
        assert_eq!(admit(&unsigned, known), Err(ReleaseRefusal::UnknownKey { signed_by: Vec::new() }));
    }

    #[test]
    fn nothing_may_be_changed_after_it_was_signed() {
        let mut case = Case::new(None);
        case.desired.manifest.payload = case.desired.manifest.payload.replace("\"serial\":7", "\"serial\":8");
        case.desired.serial = 8;
        let key = case.key.public().id().to_string();
        assert_eq!(case.judged(None, None, NOON), Err(ReleaseRefusal::BadSignature { key }));
    }

    #[test]
    fn a_manifest_of_something_else_is_refused_with_both() {
        for (change, says) in [
            (
                Box::new(|desired: &mut DesiredState| desired.version = Version::new("v3").unwrap())
                    as Box<dyn Fn(&mut DesiredState)>,
                "of version v2, and the node should run v3",
            ),
            (Box::new(|desired| desired.digest = digest("c").to_string()), "and the server says sha256:ccc"),
            (Box::new(|desired| desired.serial = 9), "its serial is 7, and the server says 9"),
        ] {
            let mut case = Case::new(None);
            change(&mut case.desired);
            let refused = case.judged(None, None, NOON).unwrap_err();
            assert!(matches!(&refused, ReleaseRefusal::Another { what } if what.contains(says)), "{refused}");
        }
    }

    #[test]
    fn an_older_one_needs_the_word_of_a_person() {
        let mut case = Case::new(None);
        assert_eq!(case.judged(Some(8), None, NOON), Err(ReleaseRefusal::Older { serial: 7, highest: 8 }));
        // Also if the node has been there before.
        let current = digest("a");
        assert!(case.judged(Some(8), Some(current.as_str()), NOON).is_err());
        case.desired.allow_older = true;
        assert!(case.judged(Some(8), None, NOON).is_ok());
    }

    #[test]
    fn the_end_of_its_time_counts_by_the_nodes_clock_and_only_on_the_way_to_it() {
        let case = Case::new(Some(NOON));
        let (current, other) = (digest("a"), digest("c"));
        let expired = Err(ReleaseRefusal::Expired { at: at(NOON) });
        // Right, an hour slow, an hour fast.
        for (now, result) in [
            ("2026-11-15T11:59:59Z", Ok(manifest(Some(NOON)))),
            (NOON, expired.clone()),
            ("2026-11-15T11:00:00Z", Ok(manifest(Some(NOON)))),
            ("2026-11-15T13:00:00Z", expired.clone()),
        ] {
            assert_eq!(case.judged(None, None, now), result, "{now}");
            assert_eq!(case.judged(None, Some(other.as_str()), now), result, "{now}");
            assert!(case.judged(None, Some(current.as_str()), now).is_ok(), "{now}");
        }
    }

    #[test]
    fn a_manifest_of_a_later_format_is_not_guessed_at() {
        let key = SigningKey::generate("").unwrap();
        let mut later = manifest(None);
        later.format = 2;
        // What signs does not sign it; somebody with the key and another program could.
        assert!(sign(&later, std::slice::from_ref(&key)).is_err());
        let unread = desired(SignedManifest { payload: "{\"format\":2}".into(), signatures: Vec::new() });
        let known = Known { trusted: &[key.public().clone()], highest: None, been_at: &[], now: at(NOON) };
        assert!(matches!(admit(&unread, known), Err(ReleaseRefusal::UnknownKey { .. })));
    }
}
