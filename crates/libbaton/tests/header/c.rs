//! Translates Rust declarations of the boundary to C.

use syn::{
    Attribute, Expr, Fields, FnArg, GenericArgument, Item, Lit, Meta, Pat, PathArguments, PointerMutability,
    ReturnType, Type,
};

/// The C declaration of an item, or `None` if C does not see the item.
pub fn declaration(item: &Item) -> Option<String> {
    match item {
        Item::Fn(function) if function.sig.abi.is_some() => {
            let arguments = function.sig.inputs.iter().map(argument).collect();
            let declared = call(&function.sig.ident.to_string(), arguments);
            Some(format!("{}{};\n", comment(&function.attrs, ""), result(&function.sig.output, &declared)))
        }
        Item::Const(constant) if is_public(&constant.vis) => {
            let Expr::Lit(value) = &*constant.expr else { return None };
            let Lit::Int(value) = &value.lit else { return None };
            Some(format!("{}#define {} {value}\n", comment(&constant.attrs, ""), constant.ident))
        }
        Item::Type(alias) if is_public(&alias.vis) => {
            // Any other alias is a handle, which the opening of the header declares.
            let Type::FnPtr(function) = &*alias.ty else { return None };
            let arguments = function.inputs.iter().map(|input| {
                let (name, _) = input.name.as_ref().expect("a named argument");
                variable(&input.ty, &name.to_string())
            });
            let declared = call(&format!("(*{})", alias.ident), arguments.collect());
            Some(format!("{}typedef {};\n", comment(&alias.attrs, ""), result(&function.output, &declared)))
        }
        // A structure with private fields is opaque to C.
        Item::Struct(record) if record.fields.iter().all(|field| is_public(&field.vis)) => {
            let Fields::Named(fields) = &record.fields else { panic!("{}: unnamed fields", record.ident) };
            let name = &record.ident;
            let mut text = format!("{}typedef struct {name} {{\n", comment(&record.attrs, ""));
            for field in &fields.named {
                let ident = field.ident.as_ref().expect("a named field").to_string();
                text += &format!("{}    {};\n", comment(&field.attrs, "    "), variable(&field.ty, &ident));
            }
            Some(format!("{text}}} {name};\n"))
        }
        _ => None,
    }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

fn argument(argument: &FnArg) -> String {
    let FnArg::Typed(argument) = argument else { panic!("a method") };
    let Pat::Ident(name) = &*argument.pat else { panic!("an unnamed argument") };
    variable(&argument.ty, &name.ident.to_string())
}

/// `name(arguments)`, on one line if it is short, else with one argument a line.
fn call(name: &str, arguments: Vec<String>) -> String {
    let line = format!("{name}({})", arguments.join(", "));
    if line.len() < 85 { line } else { format!("{name}(\n    {})", arguments.join(",\n    ")) }
}

fn result(output: &ReturnType, declared: &str) -> String {
    match output {
        ReturnType::Default => format!("void {declared}"),
        ReturnType::Type(_, ty) => variable(ty, declared),
    }
}

/// A declaration of `name` with type `ty`, in C's syntax.
fn variable(ty: &Type, name: &str) -> String {
    match ty {
        Type::Ptr(pointer) => {
            let constant = if matches!(pointer.mutability, PointerMutability::Const(_)) { "const " } else { "" };
            format!("{constant}{}", variable(&pointer.elem, &format!("*{name}")))
        }
        Type::Array(array) => {
            let Expr::Lit(len) = &array.len else { panic!("{name}: not a literal length") };
            let Lit::Int(len) = &len.lit else { panic!("{name}: not a number") };
            variable(&array.elem, &format!("{name}[{len}]"))
        }
        Type::Path(path) => {
            let last = path.path.segments.last().expect("a path");
            if let PathArguments::AngleBracketed(inner) = &last.arguments {
                // An `Option` of a function is a pointer that may be null.
                let Some(GenericArgument::Type(inner)) = inner.args.first() else { panic!("{name}: no type within") };
                return variable(inner, name);
            }
            format!("{} {name}", named(&last.ident.to_string()))
        }
        _ => panic!("{name}: a type without a C equivalent"),
    }
}

fn named(rust: &str) -> &str {
    match rust {
        "c_int" => "int",
        "c_char" => "char",
        "c_ulong" => "unsigned long",
        "c_void" => "void",
        "usize" => "size_t",
        "isize" => "ssize_t",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "sockaddr" => "struct sockaddr",
        "iovec" => "struct iovec",
        "msghdr" => "struct msghdr",
        "pollfd" => "struct pollfd",
        "epoll_event" => "struct epoll_event",
        own => {
            let known = ["baton", "baton_config", "baton_wait_fn", "baton_service", "baton_stream"];
            assert!(known.contains(&own) || matches!(own, "socklen_t" | "nfds_t"), "{own}?");
            own
        }
    }
}

/// Doc comments as a C comment, without the heading of the safety section and without links to
/// other Rust items.
fn comment(attributes: &[Attribute], indent: &str) -> String {
    let mut lines: Vec<String> = attributes.iter().filter_map(doc).collect();
    lines.retain(|line| line != "# Safety");
    lines.dedup_by(|a, b| a.is_empty() && b.is_empty());
    let rust_only = |line: &String| line.contains("see [`");
    lines.iter_mut().filter(|line| rust_only(line)).for_each(|line| {
        *line = line.split("; see [`").next().unwrap_or_default().to_owned() + ".";
    });
    let between = format!("\n{indent} * ");
    let text = lines.join(&between).replace(" * \n", " *\n");
    format!("{indent}/* {text} */\n")
}

fn doc(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(value) = &pair.value else { return None };
    let Lit::Str(text) = &value.lit else { return None };
    attribute.path().is_ident("doc").then(|| text.value().trim().to_owned())
}
