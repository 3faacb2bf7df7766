package neokv

var plantedPlans []plan
