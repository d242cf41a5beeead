//! Codes of findings, their severities, meanings, explanations and examples.
//!
//! Codes are stable: operators search for them and scripts match them. A code that is no longer used is not reused.

use std::fmt;

use crate::finding::{Finding, FindingCode, Severity};

macro_rules! catalogue {
    ($($code:ident = $id:literal $severity:ident $meaning:literal,)*) => {
        /// Code of a finding. M00xx: files and YAML; M01xx: environment files, and keys
        /// of all documents; M10xx: documents and inheritance; M11xx: networks and links; M12xx: nodes and their addresses; M13xx:
        /// storage; M14xx: hardware and platform; M15xx: boot actions; M16xx: out-of-band access and drivers; M17xx:
        /// configuration items; M18xx: Drydock's documents; M19xx: rollout strategies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $code,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Code] = &[$(Code::$code,)*];

            /// The stable name: `M0103`.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$code => $id,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Code::$code => Severity::$severity,)* }
            }

            /// The code of a name.
            pub fn parse(name: &str) -> Option<Code> {
                match name { $($id => Some(Code::$code),)* _ => None }
            }

            /// Explanation with cause and correction: Markdown.
            pub fn explanation(self) -> &'static str {
                match self {
                    $(Code::$code => include_str!(concat!("../../explanations/", $id, ".md")),)*
                }
            }

            /// Meaning in one sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$code => $meaning,)* }
            }
        }
    };
}

catalogue! {
    Unreadable = "M0001" Error "The file cannot be read.",
    TooLarge = "M0002" Error "The file, or its expanded content, is larger than a design may be.",
    NotUtf8 = "M0003" Error "The file has bytes that are not UTF-8.",
    Syntax = "M0004" Error "The file is not YAML.",
    Tab = "M0005" Error "A line is indented with a tab, which YAML does not allow.",
    DuplicateKey = "M0006" Error "A mapping has the same key twice.",
    KeyNotText = "M0007" Error "A key is empty, a list or a mapping.",
    Tag = "M0008" Error "A value has a YAML tag, which is not supported.",
    MergeKey = "M0009" Error "A mapping has the merge key `<<`, which is not part of YAML 1.2.",
    AliasExpansion = "M0010" Error "The aliases of the file expand to more than is accepted.",
    TooDeep = "M0011" Error "Values are nested too deep.",
    UnknownAlias = "M0012" Error "An alias names no complete anchor of the same document.",
    TooManyFindings = "M0013" Error "There are more findings than are shown.",

    EmptyFile = "M0101" Error "The file has no document.",
    SeveralDocuments = "M0102" Error "The file has more than one document.",
    UnknownKey = "M0103" Error "A key is unknown in this mapping.",
    MissingKey = "M0104" Error "A required key is missing.",
    WrongType = "M0105" Error "A value has another type than expected.",
    FormatVersion = "M0106" Error "The file is written for another version of the format.",
    RoleName = "M0107" Error "A role's name is not legal.",
    Cardinality = "M0108" Error "A cardinality is out of range.",
    AfterUnknown = "M0109" Error "A role comes after one that is not in the file.",
    AfterCycle = "M0110" Error "Roles come after each other in a cycle.",
    StackName = "M0111" Error "The stack's name is not legal.",
    NoRoles = "M0112" Error "The environment has no roles.",
    EmptyText = "M0113" Error "A required text is empty.",
    // M0114 is not reused. It reported that the section `rollout` was not read.
    EnvironmentName = "M0115" Error "The file's name is not a legal name of an environment.",
    HostNameTooLong = "M0116" Error "The host names of a role's nodes would be too long.",
    AfterTwice = "M0117" Warning "A role is listed twice in `after`.",
    TooManyNodes = "M0118" Error "The environment has more nodes than one environment may have.",
    HostOfUnknownNode = "M0119" Error "`hosts` names a node that is not in the file.",
    HostPattern = "M0120" Error "The pattern of host names is not valid.",

    NotADocument = "M1001" Error "A document is not a mapping with a kind and a name.",
    UnknownKind = "M1002" Error "The kind of a document is unknown.",
    DocumentName = "M1003" Error "The name of a document is not legal.",
    DuplicateDocument = "M1004" Error "Two documents of one source have the same kind and name.",
    OverlaidDocument = "M1005" Warning "A document is in two sources: the later one overrides the earlier.",
    NothingBelow = "M1006" Error "An overlay has no document in an earlier source.",
    UnknownParent = "M1007" Error "A document extends one that does not exist.",
    ParentCycle = "M1008" Error "Documents extend each other in a cycle.",
    RemovesNothing = "M1009" Warning "A removal has no effect.",
    DanglingReference = "M1010" Error "A value names a document that does not exist.",
    NotAnAddress = "M1011" Error "A value is not an IP address.",
    NotACidr = "M1012" Error "A value is not a network in CIDR notation.",
    NotAMac = "M1013" Error "A value is not a MAC address.",
    NotASize = "M1014" Error "A value is not a size.",
    NotAHostName = "M1015" Error "A value is not a legal host name.",
    NotADomain = "M1016" Error "A value is not a legal domain name.",
    NotAUuid = "M1017" Error "A value is not a UUID.",
    NotAPath = "M1018" Error "A value is not an absolute path.",
    NotPermissions = "M1019" Error "A value is not a file mode.",
    NotACpuSet = "M1020" Error "A value is not a set of processors.",
    OutOfRange = "M1021" Error "A number is out of range.",
    NotOneOf = "M1022" Error "A value is not one of the accepted values.",
    SecretAsText = "M1023" Error "A secret is written as text.",
    MemberWithoutKey = "M1024" Error "A member of a list has no primary key.",
    DuplicateMember = "M1025" Error "Two members of a list have the same primary key.",
    NodeName = "M1026" Error "The name of a node is not legal.",
    NoRole = "M1027" Error "A node has no role.",
    WhichEnvironment = "M1028" Error "A node does not name its environment, and there are several.",
    UnknownEnvironment = "M1029" Error "The environment does not exist, or several exist and none is selected.",
    UnknownFlavor = "M1030" Error "The cloud's map file does not have a flavor.",
    UnknownRole = "M1031" Error "A cardinality is given for a role that is not in the environment.",
    TooManyLayers = "M1032" Error "A document has more than 64 layers.",
    SpareNode = "M1033" Warning "The number of a node is higher than the cardinality of its role.",

    HostBitsSet = "M1101" Error "A network is written with the address of a host.",
    NoCidr = "M1102" Error "A network has ranges, routes or a relay, but no `cidr`.",
    NetworksOverlap = "M1103" Error "Two networks of one routing domain have addresses in common.",
    RangeIncomplete = "M1104" Error "A range has no type, no start or no end.",
    RangeBackwards = "M1105" Error "A range ends before it starts.",
    RangeOutside = "M1106" Error "A range is not inside its network.",
    RangesOverlap = "M1107" Error "Two ranges of different types have addresses in common.",
    RangesRepeat = "M1108" Warning "Two ranges of the same type have addresses in common.",
    RouteWithoutGateway = "M1109" Error "A route has no gateway.",
    GatewayOutside = "M1110" Error "A gateway is not in its network.",
    GatewayOfNoHost = "M1111" Error "A gateway has the network address or the broadcast address.",
    GatewayOfOtherFamily = "M1112" Error "A route to IPv6 addresses has an IPv4 gateway.",
    EmptyRoutedomain = "M1113" Warning "A route names a routing domain without other networks.",
    RelayOutside = "M1114" Error "The address of a DHCP relay is not in its network.",
    MtuRange = "M1115" Error "An MTU is out of range.",
    MtuAboveLink = "M1116" Error "The MTU of a network is more than that of the link that carries it.",
    NetworkOnTwoLinks = "M1117" Warning "A network is on two links.",
    BondOptionsWithoutBond = "M1118" Error "A link without a bond has options of a bond.",
    BondDelay = "M1119" Error "A bond's delay is shorter than its monitoring interval.",
    BondUnwatched = "M1120" Warning "A bond does not monitor its members.",
    BondOptionOfOtherMode = "M1121" Error "A bond has an option of the mode 802.3ad.",
    TrunkingNeeded = "M1122" Error "A link carries several networks, but is not a trunk.",
    TaggedWithoutTrunk = "M1123" Error "A network with a VLAN is on a link that carries no VLANs.",
    SeveralUntagged = "M1124" Error "Two networks of a trunk are untagged.",
    DefaultNotAllowed = "M1125" Warning "The default network of a link is not among its allowed networks.",
    VlanTwice = "M1126" Warning "Two networks of a link have the same VLAN.",

    NetworkNotAllowed = "M1201" Error "An interface is in a network that its link does not carry.",
    InterfaceWithoutLink = "M1202" Warning "An interface does not name the link that its networks are on.",
    InterfaceMtuAboveLink = "M1203" Error "The MTU of an interface is more than that of its link.",
    NetworkMtuAboveInterface = "M1204" Error "The MTU of an interface is less than that of a network it is in.",
    DevicesWithoutBond = "M1205" Error "An interface has several devices, and its link has no bond.",
    BondOfOne = "M1206" Warning "A bond has fewer than two devices.",
    DeviceInTwoBonds = "M1207" Error "A device is in two bonds of a node.",
    DeviceTwice = "M1208" Warning "Two interfaces of a node are the same device on the same link.",
    NetworkTwice = "M1209" Warning "Two interfaces of a node are in the same network.",
    NetworksOverlapOnNode = "M1210" Warning "Two networks of a node have addresses in common.",
    AddressMissing = "M1211" Error "A member of a node's addresses has no address.",
    AddressOutside = "M1212" Error "A node's address is not in its network.",
    AddressWithoutCidr = "M1213" Error "A node has an address in a network without a `cidr`.",
    AddressOfNoHost = "M1214" Error "A node has the network address or the broadcast address.",
    AddressOfRouter = "M1215" Warning "A node has the address of a gateway or of a DHCP relay.",
    AddressInDhcpRange = "M1216" Error "A node has an address that DHCP may assign to another machine.",
    AddressInReservedRange = "M1217" Warning "A node has a reserved address.",
    AddressInNoRange = "M1218" Warning "A node's address is in none of the static ranges of its network.",
    DuplicateAddress = "M1219" Error "Two nodes have the same address.",
    DuplicateMac = "M1220" Error "Two nodes have the same MAC address.",
    DuplicateHostName = "M1221" Error "Two nodes have the same host name.",
    NodeHostNameTooLong = "M1222" Error "The host name of a node is too long.",
    FqdnTooLong = "M1223" Error "The full name of a node, with its domain, is too long.",
    AddressWithoutInterface = "M1224" Warning "A node has an address in a network that none of its interfaces is in.",
    PrimaryNotAttached = "M1225" Warning "A node is not in its primary network.",
    PrimaryWithoutAddress = "M1226" Warning "A node has addresses, but none in its primary network.",
    NetworkOfOtherRack = "M1227" Warning "A node is in a network that is local to another rack.",
    MacOfNoDevice = "M1228" Error "A MAC address is not that of a single device.",

    NoRoot = "M1301" Warning "Disks are described, and no file system is mounted at /.",
    RootTooSmall = "M1302" Warning "The root file system is small.",
    BootTooSmall = "M1303" Warning "The file system at /boot is small.",
    DoesNotFit = "M1304" Error "Partitions, or logical volumes, do not fit.",
    Percents = "M1305" Error "Percentages of a disk, or of a volume group, add up to more than 100.",
    TwoRemainders = "M1306" Error "Two partitions, or logical volumes, take all that is left.",
    BootDriveUnknown = "M1307" Error "The boot drive is not one of the disks.",
    DiskHasTwoUses = "M1308" Error "A disk has partitions and belongs to a volume group as a whole.",
    DiskUnused = "M1309" Warning "A disk is described and not used.",
    PartitionHasTwoUses = "M1310" Error "A partition has a file system and belongs to a volume group.",
    PartitionUnused = "M1311" Warning "A partition is not used.",
    GroupWithoutDisk = "M1312" Error "No disk and no partition belongs to a volume group.",
    GroupUnknown = "M1313" Error "A disk, or a partition, belongs to a volume group that does not exist.",
    MountpointTwice = "M1314" Error "Two file systems have the same mount point.",
    UuidTwice = "M1315" Error "A UUID is used twice on one machine.",
    SeveralBootable = "M1316" Warning "Several partitions of a disk are bootable.",
    NoSize = "M1317" Error "A partition, or a logical volume, has no size.",

    HugepagesAlone = "M1401" Warning "The number of huge pages is set without their size, or the size without the number.",
    KernelReference = "M1402" Error "A kernel parameter has a reference that is not in the hardware profile.",
    AliasTwice = "M1403" Warning "Two device aliases have the same address.",
    AddressMalformed = "M1404" Error "The address of a device does not have the format of its bus.",
    AliasIncomplete = "M1405" Error "A device alias has no address or no bus.",
    DeviceUnknown = "M1406" Warning "A device is not an alias of the hardware profile.",
    PxeInterface = "M1407" Warning "The interface for the installation is unknown.",
    ImageUnknown = "M1408" Error "The cloud's map file does not have an image.",
    KernelParamText = "M1409" Error "A kernel parameter cannot be on the kernel's command line.",

    AssetIncomplete = "M1501" Error "An asset has no type, no content or no path.",
    AssetPathTwice = "M1502" Error "Two assets of a boot action have the same path.",
    AssetContentTwice = "M1503" Warning "An asset has both data and a location.",
    UnitName = "M1504" Warning "The path of a unit does not have the suffix of a unit.",
    PackageVersion = "M1505" Error "The name or version of a package is invalid.",
    SelectsNothing = "M1506" Warning "A boot action selects no node.",
    FilterNameUnknown = "M1507" Warning "A filter names a node or a rack that does not exist.",
    NodeWithoutBootAction = "M1508" Warning "A node is selected by no boot action.",

    OobIncomplete = "M1601" Error "An out-of-band access lacks its network, its account or its credential.",
    OobWithoutAddress = "M1602" Error "A node has no address in the network of its out-of-band access.",
    LibvirtUri = "M1603" Error "The libvirt URI of a virtual machine is missing or invalid.",
    LibvirtWithoutMac = "M1604" Error "A virtual machine has no MAC address.",
    OobTypeUnknown = "M1605" Warning "The type of an out-of-band access is unknown.",
    NoOobType = "M1606" Warning "An out-of-band access has no type.",
    DriverWithoutName = "M1607" Error "A driver has parameters, and no name.",
    DriverUnavailable = "M1608" Error "A driver is not available.",

    ItemDoesNotFit = "M1701" Error "A configuration item does not match the schema of its kind.",
    NotASchema = "M1702" Error "A document of kind Schema is not a supported JSON Schema.",

    DrydockKind = "M1801" Error "The kind of a Drydock document is unknown.",
    DrydockVersion = "M1802" Error "The version of a Drydock document is unknown.",
    NotRendered = "M1803" Warning "A Drydock document was not rendered by Deckhand.",
    NotInherited = "M1804" Warning "A Drydock profile has a value that nodes do not inherit.",

    NotAnAmount = "M1901" Error "A value is neither a number of nodes nor a percentage.",
    PercentRange = "M1902" Error "A percentage is out of range.",
    WaveReach = "M1903" Error "A wave has no size, or two.",
    WaveNoFurther = "M1904" Error "A wave is not larger than a previous one.",
    LastWave = "M1905" Error "The last wave does not reach all nodes.",
    WaveNeverEnds = "M1906" Error "A wave can never complete.",
    BudgetOfNothing = "M1907" Error "A budget is zero, so no node could ever be updated.",
    BudgetRole = "M1908" Error "A budget is for a role that is not in the environment.",
    BudgetLabelUnused = "M1909" Warning "A budget is counted by a label that no node has.",
    GateCheckKind = "M1910" Error "A gate check has neither a URL nor a command, or both.",
    NotAUrl = "M1911" Error "A value is not a supported URL.",
    NoProgram = "M1912" Error "The command of a gate check names no program.",
    NotADuration = "M1913" Error "A value is not a duration.",
    DurationRange = "M1914" Error "A duration is out of range.",
    DeadlineOrder = "M1915" Error "The deadline for progress is not longer than the others.",
    NotADay = "M1916" Error "A value is not a day of the week, or a range of them.",
    NotATime = "M1917" Error "A value is not a time of the day.",
    UnknownTimeZone = "M1918" Error "There is no time zone of this name.",
    WindowNeverOpens = "M1919" Error "A window never opens.",
    WindowSkipped = "M1920" Warning "A window does not open on a day on which the clocks are changed.",
    TooManyWaves = "M1921" Error "There are more waves than a rollout can have.",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Code {
    pub fn finding(self, message: impl Into<String>) -> Finding {
        Finding::new(self.into(), self.severity(), message)
    }
}

impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl From<Code> for FindingCode {
    fn from(code: Code) -> Self {
        FindingCode(code.as_str().into())
    }
}

impl PartialEq<Code> for FindingCode {
    fn eq(&self, code: &Code) -> bool {
        self.as_str() == code.as_str()
    }
}

/// All examples. A test generates this file from `examples/findings/` and compares it. It is part of the crate, so that
/// the crate can be built from its own directory, and a new code needs no example file to compile.
const EXAMPLES: &str = include_str!("../../explanations/examples.md");

/// Files that trigger a finding, the finding, and similar files that do not: Markdown to show below
/// [`Code::explanation`]. None if no files trigger the code alone.
pub fn example(code: Code) -> Option<&'static str> {
    let (_, from) = EXAMPLES.split_once(&example_marker(code))?;
    Some(from.split("\n<!-- M").next()?.trim())
}

/// Comment above the example of a code.
fn example_marker(code: Code) -> String {
    format!("<!-- {code} -->\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(Code::ALL.is_sorted_by(|a, b| a.as_str() < b.as_str()));
    }

    #[test]
    fn example_is_found_by_its_code() {
        let of_keys = example(Code::DuplicateKey).unwrap_or_default();
        assert!(of_keys.starts_with("## Example") && of_keys.contains("error[M0006]"), "{of_keys}");
        assert!(!of_keys.contains("error[M0007]") && !of_keys.contains("<!--"), "{of_keys}");
        assert_eq!(example(Code::TooManyFindings), None);
    }
}
