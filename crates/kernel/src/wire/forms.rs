//! The codecs of structs and enums, written from their fields and variants.

/// Writes a struct's fields in the order given.
#[macro_export]
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                $($crate::wire::Wire::encode(&self.$field, out);)*
            }
            fn decode(reader: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                Ok($name { $($field: $crate::wire::Wire::decode(reader)?),* })
            }
            #[inline]
            fn latest_epoch(&self) -> $crate::id::Epoch {
                $crate::id::Epoch(0)$(.max($crate::wire::Wire::latest_epoch(&self.$field)))*
            }
            #[inline]
            fn since(&self) -> $crate::level::Level {
                $crate::level::Level::FIRST$(.max($crate::wire::Wire::since(&self.$field)))*
            }
        }
    };
}

/// Writes an enum as a tag and the variant's fields in the order given. A variant that the nodes of
/// earlier releases do not know names the level since which it is understood: `4 since 18 => New`.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident { $($tag:literal $(since $level:literal)? => $variant:ident $({ $($field:ident),* $(,)? })? $(($inner:ident))?),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                match self {$(
                    $name::$variant $({ $($field),* })? $(($inner))? => {
                        out.push($tag);
                        $($($crate::wire::Wire::encode($field, out);)*)?
                        $($crate::wire::Wire::encode($inner, out);)?
                    }
                )*}
            }
            fn decode(reader: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                match <u8 as $crate::wire::Wire>::decode(reader)? {
                    $($tag => {
                        $($(let $field = $crate::wire::Wire::decode(reader)?;)*)?
                        $(let $inner = $crate::wire::Wire::decode(reader)?;)?
                        Ok($name::$variant $({ $($field),* })? $(($inner))?)
                    })*
                    tag => Err($crate::wire::WireError::UnknownTag { what: stringify!($name), tag }),
                }
            }
            #[inline]
            fn latest_epoch(&self) -> $crate::id::Epoch {
                match self {$(
                    $name::$variant $({ $($field),* })? $(($inner))? => {
                        $crate::id::Epoch(0)
                            $($(.max($crate::wire::Wire::latest_epoch($field)))*)?
                            $(.max($crate::wire::Wire::latest_epoch($inner)))?
                    }
                )*}
            }
            #[inline]
            fn since(&self) -> $crate::level::Level {
                match self {$(
                    $name::$variant $({ $($field),* })? $(($inner))? => {
                        $crate::level::Level::FIRST
                            $(.max($crate::level::Level($level)))?
                            $($(.max($crate::wire::Wire::since($field)))*)?
                            $(.max($crate::wire::Wire::since($inner)))?
                    }
                )*}
            }
        }
    };
}
