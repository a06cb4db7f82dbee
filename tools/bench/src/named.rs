//! Enums whose variants have a name on the command line and a description in lists.

/// Defines such an enum, with its variants in the order in which they are shown.
///
/// A variant after a semicolon is only printed: it is not listed and cannot be requested.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        enum $Enum:ident, $noun:literal {
            $($Variant:ident $name:literal $what:literal,)*
            $(; $Hidden:ident $hidden_name:literal $hidden_what:literal,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub(crate) enum $Enum {
            $(#[doc = $what] #[serde(rename = $name)] $Variant,)*
            $(#[doc = $hidden_what] #[serde(rename = $hidden_name)] $Hidden,)?
        }

        impl $Enum {
            pub(crate) const ALL: [Self; [$($name),*].len()] = [$(Self::$Variant),*];

            /// Returns the name on the command line and in results.
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)*
                    $(Self::$Hidden => $hidden_name,)?
                }
            }

            /// Returns the description: a phrase without a full stop.
            pub(crate) const fn what(self) -> &'static str {
                match self {
                    $(Self::$Variant => $what,)*
                    $(Self::$Hidden => $hidden_what,)?
                }
            }
        }

        impl std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $Enum {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.into_iter().find(|known| known.as_str() == text).ok_or_else(|| {
                    let names = Self::ALL.map(Self::as_str).join(", ");
                    format!("no {} is named {text:?}; known are {names}", $noun)
                })
            }
        }
    };
}
pub(crate) use named_enum;

#[cfg(test)]
mod tests {
    use crate::{contenders::Name, workloads::Workload};

    #[test]
    fn names_parse_back() {
        for name in Name::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for workload in Workload::ALL {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        "none".parse::<Name>().unwrap_err();
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        let message = "mutex".parse::<Name>().unwrap_err();
        assert!(Name::ALL.iter().all(|name| message.contains(name.as_str())), "{message}");
    }
}
