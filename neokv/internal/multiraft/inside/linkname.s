// The compiler takes a function without a body, such as setApplyReady, only in a package that has assembly.
