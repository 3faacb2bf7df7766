package vm

// instruction is one step of the machine: operation, A, C and B, or A and Bx.
//
//	 31      23 22      14 13    6 5    0
//	+----------+----------+-------+------+
//	|    B     |    C     |   A   |  op  |
//	+----------+----------+-------+------+
//	|    Bx, or sBx+131071        |  ...
//
// B and C name a register, or from 256 on a constant where the text below says RK.
type instruction uint32

type opcode uint8

const (
	opMove      opcode = iota // R(A) = R(B)
	opLoadK                   // R(A) = K(Bx)
	opLoadBool                // R(A) = B; if C, skip one
	opLoadNil                 // R(A) to R(B) = nil
	opGetUpval                // R(A) = U(B)
	opGetGlobal               // R(A) = G[K(Bx)]
	opGetTable                // R(A) = R(B)[RK(C)]
	opSetGlobal               // G[K(Bx)] = R(A)
	opSetUpval                // U(B) = R(A)
	opSetTable                // R(A)[RK(B)] = RK(C)
	opNewTable                // R(A) = {}, with room for B and C
	opSelf                    // R(A+1) = R(B); R(A) = R(B)[RK(C)]
	opAdd                     // R(A) = RK(B) + RK(C); and so on
	opSub
	opMul
	opDiv
	opMod
	opPow
	opUnm    // R(A) = -R(B)
	opNot    // R(A) = not R(B)
	opLen    // R(A) = #R(B)
	opConcat // R(A) = R(B) .. to R(C)
	opJmp    // pc += sBx
	opEq     // skip one if (RK(B) == RK(C)) ~= A; and so on
	opLt
	opLe
	opTest     // skip one if R(A) is not C
	opTestSet  // R(A) = R(B) if R(B) is C, else skip one
	opCall     // R(A), ... C-1 results = R(A)(R(A+1), ... B-1 arguments); 0: up to the top
	opTailCall // return R(A)(R(A+1), ... B-1 arguments)
	opReturn   // return R(A), ... B-1 values
	opForLoop  // R(A) += R(A+2); if R(A) is within R(A+1), pc += sBx and R(A+3) = R(A)
	opForPrep  // R(A) -= R(A+2); pc += sBx
	opTForLoop // R(A+3), ... C results = R(A)(R(A+1), R(A+2)); if R(A+3) is nil, skip one, else R(A+2) = R(A+3)
	opSetList  // R(A)[(C-1)*50+i] = R(A+i), i from 1 to B; C = 0: the next instruction is C
	opClose    // close the upvalues from R(A) on
	opClosure  // R(A) = a closure of P(Bx); one opMove or opGetUpval for each upvalue follows
	opVararg   // R(A), ... B-1 values = ...
)

const (
	maxBx        = 1<<18 - 1
	maxSBx       = maxBx >> 1
	maxC         = 1<<9 - 1
	constantBit  = 1 << 8
	maxConstantR = constantBit - 1 // the last constant that B and C can name
	noRegister   = 255
	fieldsPerSet = 50
)

func makeABC(op opcode, a, b, c int) instruction {
	return instruction(op) | instruction(a)<<6 | instruction(c)<<14 | instruction(b)<<23
}

func makeABx(op opcode, a, bx int) instruction {
	return instruction(op) | instruction(a)<<6 | instruction(bx)<<14
}

func (i instruction) op() opcode { return opcode(i & 63) }
func (i instruction) a() int     { return int(i >> 6 & 255) }
func (i instruction) b() int     { return int(i >> 23) }
func (i instruction) c() int     { return int(i >> 14 & 511) }
func (i instruction) bx() int    { return int(i >> 14) }
func (i instruction) sbx() int   { return int(i>>14) - maxSBx }

func (i *instruction) setOp(op opcode) { *i = *i&^63 | instruction(op) }
func (i *instruction) setA(a int)      { *i = *i&^(255<<6) | instruction(a)<<6 }
func (i *instruction) setB(b int)      { *i = *i&^(511<<23) | instruction(b)<<23 }
func (i *instruction) setC(c int)      { *i = *i&^(511<<14) | instruction(c)<<14 }
func (i *instruction) setSBx(n int)    { *i = *i&(1<<14-1) | instruction(n+maxSBx)<<14 }

// encodeSize writes a size in eight bits, rounded up: xxx as it is, eeeeexxx as (1xxx) << (eeeee-1).
func encodeSize(n int) int {
	e := 0
	for n >= 16 {
		n = (n + 1) >> 1
		e++
	}
	if n < 8 {
		return n
	}
	return (e+1)<<3 | (n - 8)
}

func decodeSize(b int) int {
	if e := b >> 3 & 31; e > 0 {
		return (b&7 + 8) << (e - 1)
	}
	return b
}
