//! Verifies signatures, expiry and lists of trusted keys.

use jiff::Timestamp;
use muster_core::release::manifest::{Digest, PublicKey, SignedManifest, SignedTrust};
use muster_release::bundle::BundleInfo;
use muster_release::key::SigningKey;
use muster_release::manifest::{
    self, ReleaseLabel, SignatureError, TrustError, VerifyError, authenticate, create, sign, verify,
};

use crate::support::label;

fn key() -> SigningKey {
    SigningKey::generate("").unwrap()
}

fn public(keys: &[&SigningKey]) -> Vec<PublicKey> {
    keys.iter().map(|key| key.public().clone()).collect()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn signed(expires: Option<&str>, keys: &[SigningKey]) -> SignedManifest {
    let digest = Digest::new(format!("sha256:{}", "a".repeat(64))).unwrap();
    let packed = BundleInfo { digest: digest.clone(), size: 1, content: digest, files: 1, content_size: 1 };
    sign(&create(ReleaseLabel { expires: expires.map(at), ..label("v2") }, &packed), keys).unwrap()
}

const NOW: &str = "2026-02-01T00:00:00Z";

#[test]
fn one_trusted_key_is_enough() {
    let keys = [key(), key()];
    let manifest = signed(None, &keys);
    for trusted in [public(&[&keys[0]]), public(&[&keys[1]]), public(&[&key(), &keys[1]])] {
        let verified = verify(&manifest, &trusted, at(NOW)).unwrap();
        assert_eq!(verified.manifest.version.as_str(), "v2");
        assert!(trusted.iter().any(|key| key.id() == verified.signed_by));
    }
}

#[test]
fn unknown_key_is_named() {
    let keys = [key(), key()];
    let ids: Vec<_> = keys.iter().map(|key| key.public().id()).collect();
    let refused = verify(&signed(None, &keys), &public(&[&key()]), at(NOW)).unwrap_err();
    let VerifyError::Signature(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(
        refused.to_string(),
        format!("it is signed by keys {}, {}, and no such key is trusted here", ids[0], ids[1])
    );
    assert_eq!(refused, SignatureError::UnknownKey { ids });
    let unsigned = verify(&signed(None, &[]), &public(&[&keys[0]]), at(NOW)).unwrap_err();
    assert!(matches!(unsigned, VerifyError::Signature(SignatureError::Unsigned)));
}

#[test]
fn changed_manifest_is_refused() {
    let key = [key()];
    let trusted = public(&[&key[0]]);
    let good = signed(None, &key);
    let other_version = SignedManifest { payload: good.payload.replace("v2", "v3"), ..good.clone() };
    let mut other_signature = good.clone();
    other_signature.signatures[0].signature = "AAAA".into();
    // The id of a trusted key with the signature of another key.
    let mut borrowed = signed(None, &[self::key()]);
    borrowed.signatures[0].key = key[0].public().id();
    for changed in [other_version, other_signature, borrowed] {
        let refused = verify(&changed, &trusted, at(NOW)).unwrap_err();
        assert!(matches!(refused, VerifyError::Signature(SignatureError::BadSignature { .. })), "{refused:?}");
    }
    // A bad signature next to a good one is ignored.
    let mut both = good;
    both.signatures.insert(0, both.signatures[0].clone());
    both.signatures[0].signature = "AAAA".into();
    assert!(verify(&both, &trusted, at(NOW)).is_ok());
}

#[test]
fn every_flipped_bit_of_a_payload_is_found() {
    let key = [key()];
    let good = signed(None, &key);
    for place in 0..good.payload.len() {
        let mut bytes = good.payload.clone().into_bytes();
        bytes[place] ^= 1;
        let changed = SignedManifest { payload: String::from_utf8(bytes).unwrap(), ..good.clone() };
        assert!(verify(&changed, &public(&[&key[0]]), at(NOW)).is_err(), "byte {place}");
    }
}

#[test]
fn expired_manifest_is_authentic_but_refused() {
    let key = [key()];
    let trusted = public(&[&key[0]]);
    let manifest = signed(Some("2026-02-01T00:00:00Z"), &key);
    assert!(verify(&manifest, &trusted, at("2026-01-31T23:59:59Z")).is_ok());
    let refused = verify(&manifest, &trusted, at(NOW)).unwrap_err();
    assert_eq!(refused.to_string(), "the manifest expired at 2026-02-01T00:00:00Z");
    assert!(authenticate(&manifest, &trusted).is_ok());
}

#[test]
fn trust_list_needs_a_trusted_key_and_newer_serial() {
    let (old, new) = (key(), key());
    let list = manifest::sign_list(2, public(&[&new]), std::slice::from_ref(&old)).unwrap();
    assert_eq!(manifest::verify_list(&list, &public(&[&old]), Some(1)).unwrap().keys, public(&[&new]));
    assert!(manifest::verify_list(&list, &public(&[&old]), None).is_ok());
    assert!(matches!(
        manifest::verify_list(&list, &public(&[&old]), Some(2)),
        Err(TrustError::NotNewer { known: 2, found: 2 })
    ));
    assert!(matches!(manifest::verify_list(&list, &public(&[&new]), None), Err(TrustError::Signature(_))));
    assert!(manifest::sign_list(3, Vec::new(), &[old]).is_err());
}

/// The signature of a list of keys is not valid for a manifest with the same payload.
#[test]
fn signature_is_bound_to_its_document_type() {
    let key = [key()];
    let trusted = public(&[&key[0]]);
    let list = manifest::sign_list(1, trusted.clone(), &key).unwrap();
    let SignedTrust { payload, signatures } = list;
    let refused = authenticate(&SignedManifest { payload, signatures }, &trusted).unwrap_err();
    assert!(matches!(refused, VerifyError::Signature(SignatureError::BadSignature { .. })), "{refused:?}");
}
