//! Sizes and numbers of the core as plain numbers, for launches and reports that cross a connection.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use pool::{Bytes, DeviceId};

macro_rules! as_number {
    ($($module:ident: $type:ident($inner:ty)),* $(,)?) => {$(
        pub(crate) mod $module {
            use super::*;

            pub fn serialize<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                value.0.serialize(serializer)
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                <$inner>::deserialize(from).map($type)
            }
        }
    )*};
}

as_number! {
    bytes: Bytes(u64),
    device: DeviceId(u32),
}

pub(crate) mod bytes_or_none {
    use super::*;

    pub fn serialize<S: Serializer>(
        value: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(|bytes| bytes.0).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Bytes))
    }
}
