//! Compares the OpenAPI document with the one that is checked in.

use std::path::Path;

#[test]
fn the_checked_in_description_is_the_real_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let real = format!("{:#}\n", serde_json::to_value(muster_server::openapi()).unwrap());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &real).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == real,
        "docs/openapi.json is not what the server says: run `make reference`, and read the difference"
    );
}
