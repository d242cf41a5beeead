//! Admission of a release: decides whether it may run on this node. Nothing is downloaded or executed before.

use jiff::Timestamp;

use muster_core::names::EnvName;
use muster_core::release::manifest::{Manifest, PublicKey, ReleaseEnv};
use muster_core::report::reason::ReleaseRefusal;
use muster_release::manifest::{SignatureError, VerifyError, authenticate};
use muster_wire::sync::DesiredState;

/// State of the node that admission reads.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionInput<'a> {
    pub env: &'a EnvName,
    pub trusted: &'a [PublicKey],
    /// The highest validated serial; see [`super::release_history`].
    pub highest: Option<u64>,
    /// Digests of bundles that the node has applied before.
    pub previous: &'a [Option<&'a str>],
    /// Digest of the content that the node has run under this version.
    pub run_content: Option<&'a str>,
    /// The node's own clock. The server's time would be no protection against the server.
    pub now: Timestamp,
}

/// Verifies and admits a desired state. Returns the manifest, which a trusted key has signed.
///
/// The expiry counts only when a node first applies a release. A fleet does not stop on the day its release expires.
pub fn admit(desired: &DesiredState, input: AdmissionInput<'_>) -> Result<Manifest, ReleaseRefusal> {
    let manifest = match authenticate(&desired.manifest, input.trusted) {
        Ok(authentic) => authentic.manifest,
        Err(VerifyError::Signature(error)) => return Err(bad_signature(error)),
        Err(VerifyError::Expired { at }) => return Err(ReleaseRefusal::Expired { at }),
        Err(VerifyError::Malformed(error)) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            return Err(ReleaseRefusal::Unsafe { problem: format!("its manifest is not valid: {error}{source}") });
        }
    };
    admit_manifest(desired, &manifest, input).map(|()| manifest)
}

/// Admits an authentic manifest: it must match the desired state, the environment, and the content that the node has run
/// under its version. It must not be older than the validated one unless that is allowed, and must not be expired.
pub fn admit_manifest(
    desired: &DesiredState,
    manifest: &Manifest,
    input: AdmissionInput<'_>,
) -> Result<(), ReleaseRefusal> {
    if let Some(what) = difference(desired, manifest) {
        return Err(ReleaseRefusal::ManifestMismatch { what });
    }
    if let ReleaseEnv::Only(built_for) = &manifest.env
        && built_for != input.env
    {
        return Err(ReleaseRefusal::OtherEnvironment { built_for: built_for.clone(), node: input.env.clone() });
    }
    if let Some(known) = input.run_content.filter(|known| *known != manifest.content.as_str()) {
        let (version, found) = (manifest.version.clone(), manifest.content.to_string());
        return Err(ReleaseRefusal::OtherContent { version, known: known.to_owned(), found });
    }
    match input.highest {
        Some(highest) if manifest.serial < highest && !desired.allow_older => {
            return Err(ReleaseRefusal::Older { serial: manifest.serial, highest });
        }
        Some(_) | None => {}
    }
    match manifest.expires {
        Some(at) if at <= input.now && !input.previous.contains(&Some(manifest.digest.as_str())) => {
            Err(ReleaseRefusal::Expired { at })
        }
        Some(_) | None => Ok(()),
    }
}

fn bad_signature(error: SignatureError) -> ReleaseRefusal {
    match error {
        SignatureError::Unsigned => ReleaseRefusal::UnknownKey { signed_by: Vec::new() },
        SignatureError::UnknownKey { ids } => {
            ReleaseRefusal::UnknownKey { signed_by: ids.iter().map(ToString::to_string).collect() }
        }
        SignatureError::BadSignature { key } => ReleaseRefusal::BadSignature { key: key.to_string() },
    }
}

/// A signature proves the manifest, not that it is the desired one.
fn difference(desired: &DesiredState, manifest: &Manifest) -> Option<String> {
    if manifest.version != desired.version {
        return Some(format!("it is version {}, but the desired version is {}", manifest.version, desired.version));
    }
    if manifest.digest.as_str() != desired.digest {
        return Some(format!("its bundle is {}, but the desired bundle is {}", manifest.digest, desired.digest));
    }
    (manifest.serial != desired.serial)
        .then(|| format!("its serial is {}, but the desired serial is {}", manifest.serial, desired.serial))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::LazyLock;

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
            env: ReleaseEnv::Any,
            serial: 7,
            digest: digest("a"),
            size: 10,
            content: digest("b"),
            content_size: Some(10),
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

    static ENV: LazyLock<EnvName> = LazyLock::new(|| EnvName::new("prod").unwrap());

    /// A node that has run nothing.
    fn input(trusted: &[PublicKey]) -> AdmissionInput<'_> {
        AdmissionInput { env: &ENV, trusted, highest: None, previous: &[], run_content: None, now: at(NOON) }
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

        fn admit(&self, highest: Option<u64>, current: Option<&str>, now: &str) -> Result<Manifest, ReleaseRefusal> {
            let trusted = [SigningKey::generate("").unwrap().public().clone(), self.key.public().clone()];
            let previous = [None, current];
            admit(&self.desired, AdmissionInput { highest, previous: &previous, now: at(now), ..input(&trusted) })
        }
    }

    #[test]
    fn one_trusted_signature_is_enough() {
        let case = Case::new(None);
        assert_eq!(case.admit(None, None, NOON), Ok(manifest(None)));
        assert_eq!(case.admit(Some(7), None, NOON), Ok(manifest(None)), "the same serial is not older");
    }

    #[test]
    fn untrusted_signature_is_refused() {
        let case = Case::new(None);
        let id = case.key.public().id().to_string();
        let other = SigningKey::generate("").unwrap();
        let trusted = [other.public().clone()];
        let known = input(&trusted);
        assert_eq!(admit(&case.desired, known), Err(ReleaseRefusal::UnknownKey { signed_by: vec![id] }));
        assert!(admit(&case.desired, AdmissionInput { trusted: &[], ..known }).is_err());
        let unsigned = desired(sign(&manifest(None), &[]).unwrap());
        assert_eq!(admit(&unsigned, known), Err(ReleaseRefusal::UnknownKey { signed_by: Vec::new() }));
    }

    #[test]
    fn manifest_changed_after_signing_is_refused() {
        let mut case = Case::new(None);
        case.desired.manifest.payload = case.desired.manifest.payload.replace("\"serial\":7", "\"serial\":8");
        case.desired.serial = 8;
        let key = case.key.public().id().to_string();
        assert_eq!(case.admit(None, None, NOON), Err(ReleaseRefusal::BadSignature { key }));
    }

    #[test]
    fn manifest_of_another_release_is_refused() {
        for (change, says) in [
            (
                Box::new(|desired: &mut DesiredState| desired.version = Version::new("v3").unwrap())
                    as Box<dyn Fn(&mut DesiredState)>,
                "it is version v2, but the desired version is v3",
            ),
            (Box::new(|desired| desired.digest = digest("c").to_string()), "but the desired bundle is sha256:ccc"),
            (Box::new(|desired| desired.serial = 9), "its serial is 7, but the desired serial is 9"),
        ] {
            let mut case = Case::new(None);
            change(&mut case.desired);
            let refused = case.admit(None, None, NOON).unwrap_err();
            assert!(matches!(&refused, ReleaseRefusal::ManifestMismatch { what } if what.contains(says)), "{refused}");
        }
    }

    #[test]
    fn release_of_another_environment_is_refused() {
        let key = SigningKey::generate("").unwrap();
        let trusted = [key.public().clone()];
        let admit_for = |env: ReleaseEnv| {
            let signed = sign(&Manifest { env, ..manifest(None) }, std::slice::from_ref(&key)).unwrap();
            admit(&desired(signed), input(&trusted))
        };
        assert!(admit_for(ReleaseEnv::Any).is_ok());
        assert!(admit_for(ReleaseEnv::Only(ENV.clone())).is_ok());
        let staging = EnvName::new("staging").unwrap();
        let refused = admit_for(ReleaseEnv::Only(staging.clone())).unwrap_err();
        assert_eq!(refused, ReleaseRefusal::OtherEnvironment { built_for: staging, node: ENV.clone() });
        assert_eq!(
            refused.to_string(),
            "it was built for environment staging, and this node is in prod: build it with `muster release build --env prod`"
        );
    }

    #[test]
    fn other_content_under_a_version_that_has_run_is_refused() {
        let case = Case::new(None);
        let trusted = [case.key.public().clone()];
        let (same, other) = (digest("b"), digest("c"));
        let admit_after = |content: &Digest| {
            admit(&case.desired, AdmissionInput { run_content: Some(content.as_str()), ..input(&trusted) })
        };
        assert!(admit_after(&same).is_ok());
        let (known, found) = (other.to_string(), same.to_string());
        let version = Version::new("v2").unwrap();
        assert_eq!(admit_after(&other), Err(ReleaseRefusal::OtherContent { version, known, found }));
    }

    #[test]
    fn older_release_needs_allow_older() {
        let mut case = Case::new(None);
        assert_eq!(case.admit(Some(8), None, NOON), Err(ReleaseRefusal::Older { serial: 7, highest: 8 }));
        // Also if the node has applied it before.
        let current = digest("a");
        assert!(case.admit(Some(8), Some(current.as_str()), NOON).is_err());
        case.desired.allow_older = true;
        assert!(case.admit(Some(8), None, NOON).is_ok());
    }

    #[test]
    fn expiry_counts_by_the_own_clock_and_for_new_releases() {
        let case = Case::new(Some(NOON));
        let (current, other) = (digest("a"), digest("c"));
        let expired = Err(ReleaseRefusal::Expired { at: at(NOON) });
        // Correct, one hour slow, one hour fast.
        for (now, result) in [
            ("2026-11-15T11:59:59Z", Ok(manifest(Some(NOON)))),
            (NOON, expired.clone()),
            ("2026-11-15T11:00:00Z", Ok(manifest(Some(NOON)))),
            ("2026-11-15T13:00:00Z", expired.clone()),
        ] {
            assert_eq!(case.admit(None, None, now), result, "{now}");
            assert_eq!(case.admit(None, Some(other.as_str()), now), result, "{now}");
            assert!(case.admit(None, Some(current.as_str()), now).is_ok(), "{now}");
        }
    }

    #[test]
    fn manifest_of_a_later_format_is_refused() {
        let key = SigningKey::generate("").unwrap();
        let mut later = manifest(None);
        later.format = 2;
        // `sign` refuses it; another program with the key could sign it.
        assert!(sign(&later, std::slice::from_ref(&key)).is_err());
        let unread = desired(SignedManifest { payload: "{\"format\":2}".into(), signatures: Vec::new() });
        let trusted = [key.public().clone()];
        let known = input(&trusted);
        assert!(matches!(admit(&unread, known), Err(ReleaseRefusal::UnknownKey { .. })));
    }
}
