use std::sync::LazyLock;

/// A Lua script, and the hash by which a server knows it.
pub(super) struct Script {
    pub(super) code: &'static str,
    pub(super) hash: String,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("scripts/entry.lua"), include_str!($file)))
        });)+
    };
}

scripts! {
    ACCEPT = "scripts/accept.lua";
    BACKLOG = "scripts/backlog.lua";
    CLAIM = "scripts/claim.lua";
    COMPLETE = "scripts/complete.lua";
    DISCARD = "scripts/discard.lua";
    EXTEND = "scripts/extend.lua";
    PARK = "scripts/park.lua";
    PARKED = "scripts/parked.lua";
    RELEASE = "scripts/release.lua";
    REPLAY = "scripts/replay.lua";
    TAKE = "scripts/take.lua";
}

impl Script {
    fn new(code: &'static str) -> Self {
        let hash = redis::Script::new(code).get_hash().to_owned();
        Self { code, hash }
    }
}
