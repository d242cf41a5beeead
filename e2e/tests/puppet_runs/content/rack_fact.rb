Facter.add(:muster_rack) do
  setcode { 'rack-7' }
end
