"""INFaaS beside static variants and beside scaling without other variants, in virtual time, on an emulated family."""
