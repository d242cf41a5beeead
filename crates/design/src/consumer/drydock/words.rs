//! Drydock's words for native keys.

/// What Drydock calls what a native document calls so; what it calls the same, unchanged. Some keys (`type`) come from
/// several, and stay as they are: the line that is shown says the rest.
pub(crate) fn word(native: &str) -> &str {
    match native {
        "addresses" => "addressing",
        "devices" => "slaves",
        "disks" => "physical_devices",
        "domain_routes" => "routes",
        "filters" => "filter_set",
        "packages" => "data",
        "set" => "filter_set_type",
        "trusted_mode" => "trustedmode",
        same => same,
    }
}
